"""Probes ``/readyz`` and ``/healthz`` of a control plane program over TLS, unauthenticated."""

import ssl
from collections.abc import Collection
from pathlib import Path

import aiohttp

from moxwell.embedded.ports import host_port, https_url

TIMEOUT_SECONDS = 8.0


class HttpProbe:
    """Probes one URL; returns an empty text if healthy, else a message for a condition."""

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        path: str,
        ca: Path | None,
        accepted: Collection[int] = (200,),
    ) -> None:
        """``ca`` is None for plain HTTP; ``accepted`` are the status codes of a healthy program."""
        url = https_url(host, port) if ca else f"http://{host_port(host, port)}"
        self._name, self._url, self._ca = name, url + path, ca
        self._accepted = accepted
        self._tls: ssl.SSLContext | None = None

    async def __call__(self) -> str:
        if self._tls is None and self._ca is not None:
            self._tls = ssl.create_default_context(cafile=str(self._ca))
        limit = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=limit) as session,
                session.get(self._url, ssl=self._tls or True) as answer,
            ):
                return self._message(answer.status, await answer.text())
        except (TimeoutError, aiohttp.ClientError, OSError):
            return f"{self._name} does not answer yet"

    def _message(self, status: int, text: str) -> str:
        if status in self._accepted:
            return ""
        failing = [line[3:].split(" ")[0] for line in text.splitlines() if line.startswith("[-]")]
        return f"{self._name} is not ready: {', '.join(failing) or status}"
