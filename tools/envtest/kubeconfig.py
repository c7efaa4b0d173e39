"""
Kubeconfig files.

In: a server, its authority, and who speaks. Out: one file, mode 0600, with everything inline so
that it can be handed to any program.
"""

import base64
from pathlib import Path
from typing import Any

import yaml

from envtest.certs import Pair


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def user(pair: Pair | None = None, token: str | None = None) -> dict[str, str]:
    """Credentials as a kubeconfig has them."""
    if pair is not None:
        return {
            "client-certificate-data": _inline(pair.cert),
            "client-key-data": _inline(pair.key),
        }
    return {"token": token} if token is not None else {}


def write(path: Path, *, server: str, ca: Path, who: dict[str, str]) -> Path:
    """Write the file; its path."""
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
