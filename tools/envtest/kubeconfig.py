"""Write kubeconfig files with mode 0600 and inline certificates."""

import base64
from pathlib import Path
from typing import Any

import yaml

from envtest.certs import Pair


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def user(pair: Pair | None = None, token: str | None = None) -> dict[str, str]:
    """Credentials of a kubeconfig."""
    if pair is not None:
        return {
            "client-certificate-data": _inline(pair.cert),
            "client-key-data": _inline(pair.key),
        }
    return {"token": token} if token is not None else {}


def write(path: Path, *, server: str, ca: Path, who: dict[str, str]) -> Path:
    """Write the file; returns its path."""
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "envtest",
        "clusters": [
            {
                "name": "envtest",
                "cluster": {"server": server, "certificate-authority-data": _inline(ca)},
            }
        ],
        "users": [{"name": "envtest", "user": who}],
        "contexts": [{"name": "envtest", "context": {"cluster": "envtest", "user": "envtest"}}],
    }
    path.touch(0o600)
    path.write_text(yaml.safe_dump(content))
    return path
