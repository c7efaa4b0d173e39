"""Talos' API over gRPC and TLS with Ed25519 certificates, which grpcio itself refuses."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from moxwell.bootstrap import talos_secrets
from moxwell.bootstrap.talos_access import TalosAccess, TalosBusy
from moxwell.bootstrap.talos_secrets import TalosSecrets
from moxwell.bootstrap.talos_wire import talos_machine_pb2 as messages
from moxwell.embedded.clusterapi.taloscontrolplane import node_api
from moxwell.embedded.clusterapi.taloscontrolplane.node_api import GrpcTalosApi
from moxwell.errors import Unreachable
from moxwell.pki import certificates

NOW = datetime.now(UTC)
SECRETS = talos_secrets.create_secrets(NOW)
HOST = "127.0.0.1"


@dataclass
class Machine:
    """Talos on a machine: answers with a status code, and counts the calls."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    calls: int = 0

    async def bootstrap(self, request: Any, context: Any) -> messages.BootstrapResponse:
        self.calls += 1
        if self.code is not grpc.StatusCode.OK:
            await context.abort(self.code, "etcd data directory is not empty")
        return messages.BootstrapResponse()


def server_certificate(secrets: TalosSecrets, folder: Path) -> None:
    """A certificate with an Ed25519 key, as Talos makes them."""
    key = ed25519.Ed25519PrivateKey.generate()
    issuer = certificates.load_certificate(secrets.talos.certificate)
    template = certificates.issue(
        certificates.CertificateConfig(common_name="m", alt_names=(HOST,)), secrets.talos, NOW
    )
    like = certificates.load_certificate(template.certificate)
    builder = x509.CertificateBuilder(
        issuer.subject, like.subject, key.public_key(), like.serial_number
    )
    builder = builder.not_valid_before(like.not_valid_before_utc)
    builder = builder.not_valid_after(like.not_valid_after_utc)
    for extension in like.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    signed = builder.sign(certificates.load_ca_key(secrets.talos.key), None)
    pem = signed.public_bytes(serialization.Encoding.PEM) + certificates.key_pem(key)
    (folder / "server.pem").write_bytes(pem)
    (folder / "ca.pem").write_bytes(secrets.talos.certificate)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def serving(machine: Machine, folder: Path) -> AsyncIterator[int]:
    """The port of a machine that accepts client certificates of its CA only."""
    server_certificate(SECRETS, folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    service = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(
        machine.bootstrap,
        request_deserializer=messages.BootstrapRequest.FromString,
        response_serializer=messages.BootstrapResponse.SerializeToString,
    )
    methods = {"Bootstrap": handler}
    service.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("machine.MachineService", methods),)
    )
    service.add_insecure_port(f"unix:{folder}/service")
    await service.start()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner = await asyncio.open_unix_connection(f"{folder}/service")
        await asyncio.gather(copy(reader, inner[1]), copy(inner[0], writer))

    outside = await asyncio.start_server(connect, HOST, 0, ssl=context)
    try:
        yield outside.sockets[0].getsockname()[1]
    finally:
        outside.close()
        await service.stop(None)


def call(machine: Machine, folder: Path, secrets: TalosSecrets = SECRETS) -> None:
    """Ask the machine with a certificate of the administrator, as ``secrets`` make it."""
    client = talos_secrets.administrator(secrets, NOW)
    access = TalosAccess(HOST, SECRETS.talos.certificate, client)

    async def main() -> None:
        async with serving(machine, folder) as port:
            await GrpcTalosApi(access, port).bootstrap()

    asyncio.run(main())


@pytest.mark.parametrize("code", [grpc.StatusCode.OK, grpc.StatusCode.ALREADY_EXISTS])
def test_etcd_begins_or_has_begun(tmp_path: Path, code: grpc.StatusCode) -> None:
    machine = Machine(code)
    call(machine, tmp_path)
    assert machine.calls == 1


REFUSALS = {
    grpc.StatusCode.FAILED_PRECONDITION: TalosBusy,
    grpc.StatusCode.PERMISSION_DENIED: TalosBusy,
    grpc.StatusCode.UNAVAILABLE: Unreachable,
}


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refusal_is_tried_again(tmp_path: Path, code: grpc.StatusCode) -> None:
    with pytest.raises(REFUSALS[code], match="not empty"):
        call(Machine(code), tmp_path)


def test_a_certificate_of_another_ca_is_refused(tmp_path: Path) -> None:
    machine = Machine()
    with pytest.raises((TalosBusy, Unreachable)):
        call(machine, tmp_path, talos_secrets.create_secrets(NOW))
    assert machine.calls == 0


def test_a_machine_with_another_ca_is_not_believed(tmp_path: Path) -> None:
    other = talos_secrets.create_secrets(NOW)
    access = TalosAccess(HOST, other.talos.certificate, talos_secrets.administrator(other, NOW))

    async def main() -> None:
        async with serving(Machine(), tmp_path) as port:
            await GrpcTalosApi(access, port).bootstrap()

    with pytest.raises(TalosBusy, match="certificates"):
        asyncio.run(main())


def test_a_machine_that_does_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_api, "CONNECT_SECONDS", 1.0)
    client = talos_secrets.administrator(SECRETS, NOW)
    access = TalosAccess(HOST, SECRETS.talos.certificate, client)
    with pytest.raises(Unreachable, match="does not answer"):
        asyncio.run(GrpcTalosApi(access, 1).bootstrap())
