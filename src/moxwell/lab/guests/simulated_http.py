"""Answers HTTP on the ports of simulated pods: a text that names the pod and says so."""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]
MAX_HEAD = 64 * 1024
HEAD_END = b"\r\n\r\n"


def declared_ports(pod: Json) -> list[int]:
    """The TCP ports that the containers of a pod declare."""
    rows = [p for c in pod["spec"].get("containers") or () for p in c.get("ports") or ()]
    return [int(p["containerPort"]) for p in rows if p.get("protocol", "TCP") == "TCP"]


def port_problem(pod: Json, port: int) -> str:
    """Why nothing listens on a port; empty if something does. Undeclared pods listen on all."""
    declared = declared_ports(pod)
    if not declared or port in declared:
        return ""
    shown = ", ".join(map(str, declared))
    return f"connection refused: the simulated pod listens on its declared ports only: {shown}"


class SimulatedHttp:
    """One connection: collects a request and answers it."""

    def __init__(self, pod: Json, port: int) -> None:
        self._pod, self._port = pod, port
        self._data = bytearray()

    def feed(self, data: bytes) -> bytes:
        """The answer when the request is complete; then the connection ends."""
        self._data += data
        head, found, body = bytes(self._data).partition(HEAD_END)
        if not found and len(self._data) <= MAX_HEAD:
            return b""
        line, *headers = head.decode("latin-1").split("\r\n")
        length = next((h for h in headers if h.lower().startswith("content-length:")), ":0")
        wanted = length.partition(":")[2].strip()
        if wanted.isdecimal() and len(body) < min(int(wanted), MAX_HEAD):
            return b""
        words = line.split(" ")
        if not found or len(words) != 3 or not words[2].startswith("HTTP/1."):
            return self._response("400 Bad Request", "only HTTP/1.1 is simulated\n", words[0])
        return self._response("200 OK", self._text(words[0], words[1]), words[0])

    def _text(self, method: str, path: str) -> str:
        meta = self._pod["metadata"]
        images = ", ".join(str(c.get("image", "")) for c in self._pod["spec"]["containers"])
        return (
            f"Simulated answer of pod {meta['namespace']}/{meta['name']}, port {self._port}.\n"
            f"Request: {method} {path[:200]}\n"
            f"The lab does not run {images}.\n"
        )

    def _response(self, status: str, text: str, method: str) -> bytes:
        body = text.encode()
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nServer: simulated\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else body)
