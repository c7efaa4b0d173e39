"""
The gRPC server: serves CSI services on a Unix socket and maps errors to status codes.

Methods are found by the snake-case names of the calls in the specification's descriptor; a missing
method is UNIMPLEMENTED. Only ids of a request are logged, because requests contain secrets.
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
from moxwell.pve.audit import acting

log = structlog.get_logger(__name__)
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
GRACE_SECONDS = 5.0


def snake(name: str) -> str:
    return _CAPITAL.sub("_", name).lower()


class CallHandlers:
    """Turns the methods of a service object into gRPC handlers."""

    def __init__(self, clock: Clock, metrics: CsiMetrics) -> None:
        self._clock, self._metrics = clock, metrics

    def handlers(
        self, service: str, servant: object, file: Any = csi_pb2.DESCRIPTOR
    ) -> "grpc.GenericRpcHandler[Any, Any]":
        """The gRPC handlers for the methods that an object has; ``file`` defines the service."""
        descriptor = file.services_by_name[service]
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
            call_started, code = self._clock.monotonic(), grpc.StatusCode.UNKNOWN
            self._metrics.call_started(name)
            try:
                with acting(f"csi.{name.rpartition('/')[2]}", _object_of(request)):
                    response = await function(request)
                code = grpc.StatusCode.OK
                return response
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                raise
            except MoxwellError as error:
                code = errors.status_code(error)
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
                self._metrics.call_finished(name, code.name, self._clock.monotonic() - call_started)

        return call


def _object_of(request: Any) -> str:
    """The id or name in a request, for the audit records of its writes."""
    fields = (getattr(request, key, "") for key in ("volume_id", "snapshot_id", "name"))
    return next((str(value) for value in fields if value), "")


@asynccontextmanager
async def serving(
    address: str, handlers: "tuple[grpc.GenericRpcHandler[Any, Any], ...]"
) -> AsyncIterator[grpc.aio.Server]:
    """Run a server on ``unix:///path``; a stale socket file is removed first."""
    address = _prepare_socket(address)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(handlers)
    try:
        server.add_insecure_port(address)
    except RuntimeError as error:
        raise SocketInUse(f"cannot listen on {address}") from error
    await server.start()
    log.info("listening", address=address)
    try:
        yield server
    finally:
        await server.stop(GRACE_SECONDS)
        _remove_socket(address)


class SocketInUse(Busy):
    """Another process listens on the socket, or it cannot be created."""

    reason = "SocketInUse"


def _prepare_socket(address: str) -> str:
    """Check that the socket can be created and remove a stale one; accepts a plain path too."""
    address = address if "://" in address else f"unix://{address}"
    if not address.startswith("unix:///"):
        raise Invalid(f"--csi-address must be unix:///path, not {address!r}")
    path = Path(address.removeprefix("unix://"))
    if not path.parent.is_dir():
        raise Missing(f"the directory {path.parent} of the socket does not exist")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            _remove_socket(address)
            return address
    raise SocketInUse(f"another process listens on {address}")


def _remove_socket(address: str) -> None:
    Path(address.removeprefix("unix://")).unlink(missing_ok=True)
