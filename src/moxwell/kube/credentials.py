"""
Client credentials for an apiserver, obtained on demand and again after a 401.

The source is a token, a token file that is rotated, or an exec plugin. The result is an
``ApiIdentity`` with an Authorization header and an optional client certificate. Secrets are
``SecretText`` values that print as ``***``; they reach neither logs nor errors. The stderr of a
plugin is kept, truncated.
"""

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from moxwell.clock import Clock
from moxwell.errors import Denied

RELOAD = timedelta(minutes=1)
EARLY = timedelta(seconds=30)
PLUGIN_DEADLINE_SECONDS = 60


@dataclass(frozen=True, slots=True, repr=False)
class SecretText:
    """A text that is never printed."""

    reveal: str

    def __repr__(self) -> str:
        return "***"

    def __bool__(self) -> bool:
        return bool(self.reveal)


@dataclass(frozen=True, slots=True)
class ApiIdentity:
    """The Authorization header and client certificate of a request or connection."""

    authorization: SecretText = SecretText("")
    certificate: str = ""
    key: SecretText = SecretText("")


class ApiCredentials(Protocol):
    """Provides the current identity."""

    async def identity(self) -> ApiIdentity:
        """The identity; may run a program or read a file."""
        ...

    def forget(self) -> None:
        """The apiserver rejected the identity: obtain a new one next time."""
        ...


class NoCredentials(Denied):
    """No identity could be obtained."""

    reason = "CredentialsUnavailable"


@dataclass(frozen=True, slots=True)
class StaticCredentials:
    """An identity that never changes; the empty one is anonymous."""

    value: ApiIdentity = ApiIdentity()

    async def identity(self) -> ApiIdentity:
        return self.value

    def forget(self) -> None:
        """There is nothing to renew."""


def token(text: str) -> ApiIdentity:
    """A bearer token."""
    return ApiIdentity(SecretText(f"Bearer {text.strip()}"))


def basic(user: str, password: str) -> ApiIdentity:
    """A user name and a password."""
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return ApiIdentity(SecretText(f"Basic {pair}"))


class TokenFile:
    """A token file that is rotated, as in every pod; read again every minute."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._kept: ApiIdentity | None = None
        self._read_at = 0.0

    async def identity(self) -> ApiIdentity:
        now = self._clock.monotonic()
        if self._kept is None or now - self._read_at >= RELOAD.total_seconds():
            self._kept, self._read_at = self._read(), now
        return self._kept

    def forget(self) -> None:
        self._kept = None

    def _read(self) -> ApiIdentity:
        try:
            text = self._path.read_text()
        except OSError as error:
            raise NoCredentials(f"cannot read the token file {self._path}: {error}") from error
        if not text.strip():
            raise NoCredentials(f"the token file {self._path} is empty")
        return token(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    """The exec plugin of a kubeconfig user."""

    command: str
    args: tuple[str, ...] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    install_hint: str = ""
    cluster_info: Mapping[str, object] | None = field(default=None, repr=False)


class _Given(msgspec.Struct, frozen=True, kw_only=True):
    token: str = ""
    certificate: str = msgspec.field(name="clientCertificateData", default="")
    key: str = msgspec.field(name="clientKeyData", default="")
    expires: datetime | None = msgspec.field(name="expirationTimestamp", default=None)


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    status: _Given | None = None


class ExecCredentials:
    """Runs an exec plugin and caches its identity until shortly before it expires."""

    def __init__(self, plugin: ExecPlugin, clock: Clock) -> None:
        self._plugin, self._clock = plugin, clock
        self._kept: ApiIdentity | None = None
        self._expires: datetime | None = None
        self._turn = asyncio.Lock()

    async def identity(self) -> ApiIdentity:
        async with self._turn:
            if self._kept is None or self._is_old():
                given = await self._run()
                self._kept, self._expires = _as_identity(given, self._plugin), given.expires
            return self._kept

    def forget(self) -> None:
        self._kept = None

    def _is_old(self) -> bool:
        return self._expires is not None and self._clock.now() >= self._expires - EARLY

    async def _run(self) -> _Given:
        code, out, err = await _output(self._plugin)
        if code != 0:
            said = " ".join(err.decode(errors="replace").split())[:300]
            raise NoCredentials(f"{self._plugin.command} ended with {code}: {said}")
        try:
            answer = msgspec.json.decode(out, type=_Answer)
        except msgspec.DecodeError as error:
            raise NoCredentials(f"{self._plugin.command} printed no ExecCredential") from error
        if answer.status is None:
            raise NoCredentials(f"{self._plugin.command} gave an ExecCredential without status")
        return answer.status


async def _output(plugin: ExecPlugin) -> tuple[int, bytes, bytes]:
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *plugin.args,
            env={**plugin.env, "KUBERNETES_EXEC_INFO": _exec_info(plugin)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        hint = f"; {plugin.install_hint}" if plugin.install_hint else ""
        raise NoCredentials(f"cannot run {plugin.command}: {error.strerror}{hint}") from error
    try:
        async with asyncio.timeout(PLUGIN_DEADLINE_SECONDS):
            out, err = await process.communicate()
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise NoCredentials(f"{plugin.command} did not end in time") from error
    return process.returncode or 0, out, err


def _exec_info(plugin: ExecPlugin) -> str:
    spec: dict[str, object] = {"interactive": False}
    if plugin.cluster_info is not None:
        spec["cluster"] = plugin.cluster_info
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    return msgspec.json.encode(info).decode()


def _as_identity(given: _Given, plugin: ExecPlugin) -> ApiIdentity:
    if not given.token and not given.certificate:
        raise NoCredentials(f"{plugin.command} gave neither a token nor a certificate")
    authorization = token(given.token).authorization if given.token else SecretText("")
    return ApiIdentity(authorization, given.certificate, SecretText(given.key))
