"""A server under test, known only by its kubeconfig: HTTP requests and kubectl commands."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
import yaml


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A response."""

    status: int
    kind: str
    warnings: tuple[str, ...]
    body: Any


def _decode(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _answer(response: requests.Response) -> ApiResponse:
    kind = response.headers.get("Content-Type", "").split(";")[0]
    warnings = response.raw.headers.getlist("Warning") if response.raw is not None else []
    return ApiResponse(response.status_code, kind, tuple(warnings), _decode(response.text))


class Server:
    """HTTP sessions by user: ``admin`` is the kubeconfig's user, others use a token."""

    def __init__(
        self, kubeconfig: Path, kubectl: Path, scratch: Path, *, patience_seconds: float = 40.0
    ) -> None:
        self.patience_seconds = patience_seconds
        self.kubeconfig, self._kubectl, self._scratch = kubeconfig, kubectl, scratch
        scratch.mkdir(parents=True, exist_ok=True)
        content = yaml.safe_load(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        self.url: str = cluster["server"]
        self._ca = self._file("ca.crt", cluster, "certificate-authority")
        self.defined: set[str] = set()
        self._sessions = {"admin": self._admin(user), "nobody": self._session()}

    def send(
        self, method: str, path: str, who: str, body: Any, headers: Mapping[str, str]
    ) -> ApiResponse:
        data, sent = _payload(body, headers)
        session = self._sessions[who]
        try:
            found = session.request(method, self.url + path, data=data, headers=sent, timeout=60)
        except requests.RequestException as error:
            return ApiResponse(0, "", (), f"no answer: {type(error).__name__}")
        return _answer(found)

    @contextmanager
    def stream(self, path: str, headers: Mapping[str, str]) -> Iterator[Iterator[Any]]:
        """Open a watch and yield the decoded lines."""
        session = self._sessions["admin"]
        with session.get(self.url + path, headers=dict(headers), stream=True, timeout=30) as found:
            yield (_decode(line) for line in found.iter_lines(chunk_size=1, decode_unicode=True))

    def login(self, who: str, token: str) -> None:
        session = self._session()
        session.headers["Authorization"] = f"Bearer {token}"
        self._sessions[who] = session

    def kubectl(self, args: tuple[str, ...], stdin: str | None) -> subprocess.CompletedProcess[str]:
        command = [str(self._kubectl), "--kubeconfig", str(self.kubeconfig), *args]
        env = {
            **os.environ,
            "HOME": str(self._scratch),
            "KUBECTL_KUBERC": "false",
            "KUBE_EDITOR": "true",
        }
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, env=env, timeout=240
        )

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def _session(self) -> requests.Session:
        session = requests.Session()
        session.verify = str(self._ca)
        session.trust_env = False
        return session

    def _admin(self, user: Mapping[str, str]) -> requests.Session:
        session = self._session()
        if "token" in user:
            session.headers["Authorization"] = f"Bearer {user['token']}"
        else:
            cert = self._file("admin.crt", user, "client-certificate")
            key = self._file("admin.key", user, "client-key")
            session.cert = (str(cert), str(key))
        return session

    def _file(self, name: str, values: Mapping[str, str], key: str) -> Path:
        if key in values:
            return Path(values[key])
        path = self._scratch / name
        path.touch(0o600)
        path.write_bytes(base64.b64decode(values[f"{key}-data"]))
        return path


def _payload(body: Any, headers: Mapping[str, str]) -> tuple[bytes | None, dict[str, str]]:
    sent = {"Accept": "application/json", **headers}
    if body is None:
        return None, sent
    sent.setdefault("Content-Type", "application/json")
    text = body if isinstance(body, str) else json.dumps(body)
    return text.encode(), sent
