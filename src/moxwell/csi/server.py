"""
The gRPC side: services of the CSI specification on a socket.

In: objects whose methods are named as the specification's calls, in snake case. Out: answers, or a
status made from the error (:mod:`moxwell.csi.errors`). Which calls there are is read from the
specification's own descriptor; a call that an object lacks is UNIMPLEMENTED. The surprise: nothing
of a request but its ids ever reaches the log, because requests carry secrets.
"""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import structlog
from google.protobuf import message_factory

from moxwell.clock import Clock
from moxwell.csi import errors
from moxwell.csi.metrics import CsiMetrics
from moxwell.csi.wire import csi_pb2
from moxwell.errors import Busy, Invalid, Missing, MoxwellError

log = structlog.get_logger(__name__)
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
GRACE_SECONDS = 5.0


def snake(name: str) -> str:
    return _CAPITAL.sub("_", name).lower()


class Calls:
    """Turns methods into gRPC handlers."""

    def __init__(self, clock: Clock, metrics: CsiMetrics) -> None:
        self._clock, self._metrics = clock, metrics

    def handlers(self, service: str, servant: object) -> "grpc.GenericRpcHandler[Any, Any]":
        """The handlers of a service that an object offers."""
        descriptor = csi_pb2.DESCRIPTOR.services_by_name[service]
        methods = {}
        for method in descriptor.methods:
            function = getattr(servant, snake(method.name), None)
            if function is None:
                continue
            methods[method.name] = grpc.unary_unary_rpc_method_handler(
                self._wrapped(f"/{descriptor.full_name}/{method.name}", function),
                request_deserializer=message_factory.GetMessageClass(method.input_type).FromString,
                response_serializer=lambda answer: answer.SerializeToString(),
            )
        return grpc.method_handlers_generic_handler(descriptor.full_name, methods)

    def _wrapped(self, name: str, function: Callable[[Any], Awaitable[Any]]) -> Any:
        async def call(request: Any, context: Any) -> Any:
            began, code = self._clock.monotonic(), grpc.StatusCode.UNKNOWN
            self._metrics.began(name)
            try:
                answer = await function(request)
                code = grpc.StatusCode.OK
                return answer
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                raise
            except MoxwellError as error:
                code = errors.code_of(error)
                log.info(
                    "call refused",
                    call=name.rpartition("/")[2],
                    volume=getattr(request, "volume_id", ""),
                    code=code.name,
                    reason=error.reason,
                    error=str(error),
                )
                await context.abort(code, str(error))
            finally:
                self._metrics.called(name, code.name, self._clock.monotonic() - began)

        return call


@asynccontextmanager
async def serving(
    address: str, handlers: "tuple[grpc.GenericRpcHandler[Any, Any], ...]"
) -> AsyncIterator[grpc.aio.Server]:
    """A server on ``unix:///path``; a socket that was left over is removed first."""
    address = _free(address)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(handlers)
    try:
        server.add_insecure_port(address)
    except RuntimeError as error:
        raise SocketTaken(f"cannot listen on {address}") from error
    await server.start()
    log.info("listening", address=address)
    try:
        yield server
    finally:
        await server.stop(GRACE_SECONDS)
        _clear(address)


class SocketTaken(Busy):
    """Another process answers at the socket, or it cannot be made."""

    reason = "SocketTaken"


def _free(address: str) -> str:
    """The address of a socket that can be made now; ``/csi/csi.sock`` is one too."""
    address = address if "://" in address else f"unix://{address}"
    if not address.startswith("unix:///"):
        raise Invalid(f"--csi-address must be unix:///path, not {address!r}")
    path = Path(address.removeprefix("unix://"))
    if not path.parent.is_dir():
        raise Missing(f"the folder {path.parent} of the socket is not there")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            _clear(address)
            return address
    raise SocketTaken(f"another process answers at {address}")


def _clear(address: str) -> None:
    Path(address.removeprefix("unix://")).unlink(missing_ok=True)
