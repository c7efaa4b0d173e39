"""
Calls Talos' API on a machine over gRPC.

The certificates of that API have Ed25519 keys, which grpcio's TLS refuses. So grpcio speaks to a
Unix socket without TLS, in a folder that only this user can open, and what arrives there is sent on
over TLS with the client certificate.
"""

import asyncio
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import grpc.aio

from moxwell.bootstrap.talos_access import PORT, TalosAccess, TalosBusy
from moxwell.bootstrap.talos_wire import talos_machine_pb2 as messages
from moxwell.errors import MoxwellError, Unreachable

CALL_SECONDS = 20.0
CONNECT_SECONDS = 5.0
CHUNK = 65536
BOOTSTRAP = "/machine.MachineService/Bootstrap"
_SILENT = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class GrpcTalosApi:
    """Talos' API on one machine."""

    def __init__(self, access: TalosAccess, port: int = PORT) -> None:
        self._access, self._port = access, port

    async def bootstrap(self) -> None:
        async with self._channel() as channel:
            call = channel.unary_unary(
                BOOTSTRAP,
                messages.BootstrapRequest.SerializeToString,
                messages.BootstrapResponse.FromString,
            )
            try:
                await call(messages.BootstrapRequest(), timeout=CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
                    raise _translate(error, self._access.address) from error

    @asynccontextmanager
    async def _channel(self) -> AsyncIterator[grpc.aio.Channel]:
        """A channel over one connection to the machine."""
        remote = await self._connect()
        with tempfile.TemporaryDirectory(prefix="moxwell-") as folder:
            path = str(Path(folder) / "talos")
            server = await asyncio.start_unix_server(_Relay(remote).serve, path)
            options = (("grpc.enable_http_proxy", 0), ("grpc.default_authority", "talos"))
            try:
                async with grpc.aio.insecure_channel(f"unix:{path}", options) as channel:
                    yield channel
            finally:
                server.close()
                remote[1].close()
                with suppress(OSError):
                    await remote[1].wait_closed()

    async def _connect(self) -> Streams:
        address = self._access.address
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await asyncio.open_connection(address, self._port, ssl=self._tls())
        except ssl.SSLError as error:
            raise TalosBusy(
                f"Talos at {address} and Moxwell do not accept each other's certificates: "
                f"{error.reason or error}"
            ) from error
        except (OSError, TimeoutError) as error:
            text = str(error) or "no answer in time"
            raise Unreachable(f"Talos at {address} does not answer: {text}") from error

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self._access.ca.decode())
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Talos decides what its certificates have
        context.set_alpn_protocols(["h2"])
        client = self._access.client
        with tempfile.NamedTemporaryFile(prefix="moxwell-", suffix=".pem") as file:  # mode 0600
            file.write(client.certificate + client.key)
            file.flush()
            context.load_cert_chain(file.name)
        return context


class _Relay:
    """Sends what arrives at a Unix socket on to one connection, and back."""

    def __init__(self, remote: Streams) -> None:
        self._remote = remote

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        remote_reader, remote_writer = self._remote
        with suppress(OSError):
            await asyncio.gather(_copy(reader, remote_writer), _copy(remote_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    writer.close()


def _translate(error: grpc.aio.AioRpcError, address: str) -> MoxwellError:
    text = (error.details() or error.code().name)[:200]
    if error.code() in _SILENT:
        return Unreachable(f"Talos at {address} does not answer: {text}")
    return TalosBusy(f"Talos at {address} cannot begin etcd now: {text}")
