"""
The few calls to etcd that keeping tenants apart needs: users, roles, and the end of a prefix.

gRPC with a client certificate, whose common name is the user. The messages are so small that they
are written here by hand: fields of numbers, bytes and messages, in protobuf's wire format. Calls
that find their work done already (a user that exists, a role that is gone) count as done.
"""

from collections.abc import Iterator
from types import TracebackType

import grpc
import grpc.aio

from moxwell.errors import Denied, Retryable, Unreachable

READ_WRITE = 2
CALL_SECONDS = 10.0
_THERE, _GONE = "already exists", "not found"
Field = int | bytes | str


class EtcdRefused(Denied):
    """etcd does not allow it."""

    reason = "EtcdDenied"


class EtcdBusy(Retryable):
    """etcd could not do it now."""

    reason = "EtcdBusy"


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all keys with this prefix."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b"\0"


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def message(**fields: Field) -> bytes:
    """A message, its fields by number: ``message(f1=b"key", f2=3)``; empty ones are left out."""
    out = b""
    for name, value in fields.items():
        number = int(name[1:])
        if isinstance(value, int):
            out += _varint(number << 3) + _varint(value) if value else b""
        elif value:
            data = value.encode() if isinstance(value, str) else value
            out += _varint(number << 3 | 2) + _varint(len(data)) + data
    return out


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message, numbers and lengths only, as etcd answers have them."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        value, at = _read_varint(data, at)
        if tag & 7 == 2:
            yield tag >> 3, data[at : at + value]
            at += value
        else:
            yield tag >> 3, value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


class Etcd:
    """A connection as one user."""

    def __init__(self, port: int, *, ca: bytes, certificate: bytes, key: bytes) -> None:
        proof = grpc.ssl_channel_credentials(ca, key, certificate)
        options = (("grpc.enable_http_proxy", 0),)
        self._channel = grpc.aio.secure_channel(f"127.0.0.1:{port}", proof, options)

    async def __aenter__(self) -> "Etcd":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._channel.close(None)

    async def _call(self, method: str, body: bytes = b"") -> bytes:
        ask = self._channel.unary_unary(f"/etcdserverpb.{method}", None, None)
        try:
            answer: bytes = await ask(body, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise _meaning(error) from error
        return answer

    async def _ensure(self, method: str, body: bytes, done: str) -> None:
        """Call; an answer that says it is ``done`` already is as good."""
        try:
            await self._call(method, body)
        except EtcdBusy as error:
            if done not in str(error):
                raise

    # Is it well?

    async def probe(self) -> None:
        """Whether it answers and has a leader."""
        await self._call("KV/Range", message(f1=b"\0moxwell", f3=1))

    async def is_guarded(self) -> bool:
        """Whether users are told apart."""
        answer = await self._call("Auth/AuthStatus")
        return any(number == 2 and value == 1 for number, value in fields(answer))

    # Users

    async def guard(self) -> None:
        """Tell users apart from now on; ``root`` may do all, and is who calls this."""
        await self.add_user("root")
        await self._ensure("Auth/RoleAdd", message(f1="root"), _THERE)
        await self._call("Auth/UserGrantRole", message(f1="root", f2="root"))
        await self._call("Auth/AuthEnable")

    async def add_user(self, name: str) -> None:
        """A user without a password: who has its certificate is it."""
        await self._ensure("Auth/UserAdd", message(f1=name, f3=message(f1=1)), _THERE)

    async def confine(self, name: str, prefix: str) -> None:
        """The user may read and write below the prefix, and nothing else."""
        key = prefix.encode()
        allowed = message(f1=READ_WRITE, f2=key, f3=prefix_end(key))
        await self.add_user(name)
        await self._ensure("Auth/RoleAdd", message(f1=name), _THERE)
        await self._call("Auth/RoleGrantPermission", message(f1=name, f2=allowed))
        await self._call("Auth/UserGrantRole", message(f1=name, f2=name))

    async def forget(self, name: str, prefix: str) -> None:
        """Remove all keys below the prefix, the user and the role; harmless to repeat."""
        key = prefix.encode()
        await self._call("KV/DeleteRange", message(f1=key, f2=prefix_end(key)))
        await self._ensure("Auth/UserDelete", message(f1=name), _GONE)
        await self._ensure("Auth/RoleDelete", message(f1=name), _GONE)

    # Looking

    async def count(self, prefix: str) -> int:
        """How many keys lie below a prefix."""
        key = prefix.encode() or b"\0"
        end = prefix_end(key) if prefix else b"\0"
        answer = await self._call("KV/Range", message(f1=key, f2=end, f9=1))
        return next((int(v) for n, v in fields(answer) if n == 4), 0)

    async def put(self, key: str, value: str) -> None:
        """Write one key."""
        await self._call("KV/Put", message(f1=key, f2=value))

    async def users(self) -> tuple[str, ...]:
        """Everybody etcd knows."""
        return await self._names("Auth/UserList")

    async def roles(self) -> tuple[str, ...]:
        """Every role etcd knows."""
        return await self._names("Auth/RoleList")

    async def _names(self, method: str) -> tuple[str, ...]:
        answer = await self._call(method)
        return tuple(v.decode() for n, v in fields(answer) if n == 2 and isinstance(v, bytes))


def _meaning(error: grpc.aio.AioRpcError) -> EtcdRefused | EtcdBusy | Unreachable:
    said = error.details() or error.code().name
    if error.code() in {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED}:
        return EtcdRefused(said)
    if error.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}:
        return Unreachable(f"etcd does not answer: {said[:200]}")
    return EtcdBusy(said)
