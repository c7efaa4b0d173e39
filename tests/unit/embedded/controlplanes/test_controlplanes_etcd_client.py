"""The etcd client against a fake server, and the generated messages against their proto file."""

import itertools
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from moxwell.embedded.controlplanes.binaries.etcd_client import (
    EtcdBusy,
    EtcdClient,
    EtcdDenied,
)
from moxwell.embedded.controlplanes.binaries.etcd_wire import etcd_rpc_pb2 as rpc
from moxwell.errors import Unreachable
from moxwell.pki import certificates
from moxwell.pki.certificates import CertificateConfig

NOW = datetime.now(UTC)
CA = certificates.create_ca("etcd", NOW)
SERVER = certificates.issue(CertificateConfig(common_name="s", alt_names=("127.0.0.1",)), CA, NOW)
CLIENT = certificates.issue(CertificateConfig(common_name="root"), CA, NOW)
FOLDER = Path(rpc.__file__).parent
Answers = dict[str, Any]  # method -> message or (status code, details)


@asynccontextmanager
async def etcd(answers: Answers) -> AsyncIterator[tuple[EtcdClient, list[tuple[str, Any]]]]:
    """A client of a fake etcd, and the requests that arrive there."""
    requests: list[tuple[str, Any]] = []
    server = grpc.aio.server()
    for service in rpc.DESCRIPTOR.services_by_name.values():
        handlers = {m.name: _handler(m, answers, requests) for m in service.methods}
        handler = grpc.method_handlers_generic_handler(service.full_name, handlers)
        server.add_generic_rpc_handlers((handler,))
    credentials = grpc.ssl_server_credentials(
        [(SERVER.key, SERVER.certificate)], CA.certificate, True
    )
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    client = EtcdClient(
        ["127.0.0.1:1", f"127.0.0.1:{port}"],  # the first one does not listen
        ca=CA.certificate,
        certificate=CLIENT.certificate,
        key=CLIENT.key,
    )
    try:
        async with client as connected:
            yield connected, requests
    finally:
        await server.stop(None)


def _handler(method: Any, answers: Answers, requests: list[tuple[str, Any]]) -> Any:
    async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
        for part in answers.get(method.name, ()):
            yield part

    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(
            stream,
            GetMessageClass(method.input_type).FromString,
            GetMessageClass(method.output_type).SerializeToString,
        )

    async def answer(request: Any, context: Any) -> Any:
        requests.append((method.name, request))
        found = answers.get(method.name, GetMessageClass(method.output_type)())
        if isinstance(found, tuple):
            await context.abort(*found)
        return found

    return grpc.unary_unary_rpc_method_handler(
        answer,
        GetMessageClass(method.input_type).FromString,
        GetMessageClass(method.output_type).SerializeToString,
    )


async def test_a_tenant_gets_a_user_and_a_role_for_its_prefix() -> None:
    exists = (grpc.StatusCode.FAILED_PRECONDITION, "etcdserver: user name already exists")
    async with etcd({"UserAdd": exists, "RoleAdd": exists}) as (client, requests):
        await client.add_prefix_user("u1", "/tenants/u1/")
    assert [name for name, _ in requests] == [
        "UserAdd", "RoleAdd", "RoleGrantPermission", "UserGrantRole",
    ]  # fmt: skip
    user, _, grant, role = (request for _, request in requests)
    assert (user.name, user.options.no_password) == ("u1", True)
    assert (grant.name, grant.perm.permType) == ("u1", rpc.Permission.READWRITE)
    assert (grant.perm.key, grant.perm.range_end) == (b"/tenants/u1/", b"/tenants/u10")
    assert (role.user, role.role) == ("u1", "u1")


async def test_deleting_what_does_not_exist_succeeds() -> None:
    missing = (grpc.StatusCode.FAILED_PRECONDITION, "etcdserver: user name not found")
    async with etcd({"UserDelete": missing, "RoleDelete": missing}) as (client, requests):
        await client.delete_prefix_user("u1", "/tenants/u1/")
    assert [name for name, _ in requests] == ["DeleteRange", "UserDelete", "RoleDelete"]
    assert requests[0][1].range_end == b"/tenants/u10"


async def test_answers_are_read() -> None:
    answers = {
        "AuthStatus": rpc.AuthStatusResponse(enabled=True),
        "Range": rpc.RangeResponse(count=7),
        "UserList": rpc.AuthUserListResponse(users=["root", "u1"]),
        "RoleList": rpc.AuthRoleListResponse(roles=["root"]),
    }
    async with etcd(answers) as (client, requests):
        await client.probe()
        assert await client.is_auth_enabled()
        assert await client.count("/tenants/") == 7
        assert await client.users() == ("root", "u1")
        assert await client.roles() == ("root",)
        await client.put("k", "v")
    assert requests[2][1].count_only
    assert (requests[-1][1].key, requests[-1][1].value) == (b"k", b"v")


async def test_authentication_is_enabled_with_a_root_user() -> None:
    async with etcd({}) as (client, requests):
        assert not await client.is_auth_enabled()
        await client.enable_auth()
    names = [name for name, _ in requests]
    assert names == ["AuthStatus", "UserAdd", "RoleAdd", "UserGrantRole", "AuthEnable"]


@pytest.mark.parametrize(
    "code, error",
    [
        pytest.param(grpc.StatusCode.PERMISSION_DENIED, EtcdDenied, id="denied"),
        pytest.param(grpc.StatusCode.UNAUTHENTICATED, EtcdDenied, id="not authenticated"),
        pytest.param(grpc.StatusCode.UNAVAILABLE, Unreachable, id="unavailable"),
        pytest.param(grpc.StatusCode.FAILED_PRECONDITION, EtcdBusy, id="anything else"),
    ],
)
async def test_errors(code: grpc.StatusCode, error: type[Exception]) -> None:
    async with etcd({"Range": (code, "no")}) as (client, _):
        with pytest.raises(error, match="no"):
            await client.probe()


async def test_a_server_that_does_not_listen_is_unreachable() -> None:
    client = EtcdClient(
        ["127.0.0.1:1"], ca=CA.certificate, certificate=CLIENT.certificate, key=CLIENT.key
    )
    async with client as connected:
        with pytest.raises(Unreachable, match="etcd does not answer"):
            await connected.probe()


def snapshot_parts(content: bytes, checksum: bytes) -> list[Any]:
    """A snapshot as etcd streams it, with a part boundary inside the checksum."""
    data = content + checksum
    cuts = (0, 10, len(content), len(content) + 5, len(data))
    return [rpc.SnapshotResponse(blob=data[a:b]) for a, b in itertools.pairwise(cuts)]


async def test_a_snapshot_is_written_with_its_checksum(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4
    parts = snapshot_parts(content, sha256(content).digest())
    async with etcd({"Snapshot": parts}) as (client, _):
        await client.snapshot(tmp_path / "db")
    assert (tmp_path / "db").read_bytes() == content + sha256(content).digest()
    assert (tmp_path / "db").stat().st_mode & 0o777 == 0o600


async def test_the_revision_is_that_of_the_header() -> None:
    answer = rpc.RangeResponse(header=rpc.ResponseHeader(revision=42))
    async with etcd({"Range": answer}) as (client, _):
        assert await client.revision() == 42


@pytest.mark.parametrize("parts", [[], snapshot_parts(b"content" * 9, b"x" * 32)])
async def test_an_incomplete_snapshot_is_an_error(tmp_path: Path, parts: list[Any]) -> None:
    async with etcd({"Snapshot": parts}) as (client, _):
        with pytest.raises(EtcdBusy, match="incomplete"):
            await client.snapshot(tmp_path / "db")


def test_the_generated_messages_are_those_of_the_proto_file(tmp_path: Path) -> None:
    out = tmp_path / "set"
    arguments = [f"-I{FOLDER}", f"--descriptor_set_out={out}", str(FOLDER / "etcd_rpc.proto")]
    assert protoc.main([sys.executable, *arguments]) == 0
    compiled = FileDescriptorSet.FromString(out.read_bytes()).file[0]
    generated = type(compiled)()
    rpc.DESCRIPTOR.CopyToProto(generated)
    for file in (compiled, generated):
        file.ClearField("source_code_info")
        for message in file.message_type:
            for field in message.field:
                field.ClearField("json_name")
    assert generated == compiled
