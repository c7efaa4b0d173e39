"""
Serves ``CloudProvider`` over gRPC with mutual TLS: only clients with a certificate of the given
authority are answered.

A call that the service lacks is UNIMPLEMENTED, which Cluster Autoscaler expects of optional ones.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import structlog
from google.protobuf import message_factory

from moxwell.errors import Busy, Denied, Invalid, Missing, MoxwellError, Retryable
from moxwell.externalgrpc.node_groups import GroupLimitExceeded
from moxwell.externalgrpc.wire import externalgrpc_pb2

log = structlog.get_logger(__name__)
SERVICE = "CloudProvider"
GRACE_SECONDS = 5.0
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CODES: tuple[tuple[type[MoxwellError], grpc.StatusCode], ...] = (
    (GroupLimitExceeded, grpc.StatusCode.FAILED_PRECONDITION),
    (Invalid, grpc.StatusCode.INVALID_ARGUMENT),
    (Missing, grpc.StatusCode.NOT_FOUND),
    (Denied, grpc.StatusCode.PERMISSION_DENIED),
    (Busy, grpc.StatusCode.ABORTED),
    (Retryable, grpc.StatusCode.UNAVAILABLE),
)


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """Files in PEM: our certificate and key, and the authority of the clients."""

    certificate: Path
    key: Path
    client_ca: Path

    def credentials(self) -> grpc.ServerCredentials:
        try:
            pair = (self.key.read_bytes(), self.certificate.read_bytes())
            authority = self.client_ca.read_bytes()
        except OSError as error:
            raise Invalid(f"cannot read {error.filename}: {error.strerror}") from error
        return grpc.ssl_server_credentials([pair], authority, require_client_auth=True)


def method_name(call: str) -> str:
    """``NodeGroupGPULabel`` becomes ``node_group_gpu_label``."""
    return _WORD.sub("_", call).lower()


def status_code(error: MoxwellError) -> grpc.StatusCode:
    """The code of an error."""
    return next((c for kind, c in _CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL)


def handlers(service: object) -> "grpc.GenericRpcHandler[Any, Any]":
    """The handlers of the calls that the service has."""
    descriptor = externalgrpc_pb2.DESCRIPTOR.services_by_name[SERVICE]
    methods = {}
    for method in descriptor.methods:
        function = getattr(service, method_name(method.name), None)
        if function is not None:
            methods[method.name] = grpc.unary_unary_rpc_method_handler(
                _answering(method.name, function),
                request_deserializer=message_factory.GetMessageClass(method.input_type).FromString,
                response_serializer=lambda answer: answer.SerializeToString(),
            )
    return grpc.method_handlers_generic_handler(descriptor.full_name, methods)


def _answering(name: str, function: Callable[[Any], Awaitable[Any]]) -> Any:
    async def call(request: Any, context: Any) -> Any:
        try:
            return await function(request)
        except MoxwellError as error:
            code = status_code(error)
            log.info("call refused", call=name, code=code.name, error=str(error))
            await context.abort(code, str(error))

    return call


@asynccontextmanager
async def serving(address: str, files: ServerFiles, service: object) -> AsyncIterator[int]:
    """Serve on ``host:port`` while the block runs; yields the port."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handlers(service),))
    try:
        port = server.add_secure_port(address, files.credentials())
    except RuntimeError as error:
        raise AddressUnavailable(f"cannot listen on {address}; choose another --address") from error
    await server.start()
    log.info("listening", address=address, port=port)
    try:
        yield port
    finally:
        await server.stop(GRACE_SECONDS)


class AddressUnavailable(Busy):
    """Another process listens on the address, or it is none of this machine."""

    reason = "AddressUnavailable"
