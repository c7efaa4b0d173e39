"""
Calls etcd over gRPC: members, users and roles, permissions, deletion of a prefix, snapshots.

The client certificate authenticates: its common name is the etcd user. Creating what exists and
deleting what does not exist succeed.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from moxwell.embedded.controlplanes.binaries.etcd_wire import etcd_rpc_pb2 as rpc
from moxwell.errors import Denied, Retryable, Unreachable

CALL_SECONDS = 10.0
SNAPSHOT_SECONDS = 600.0
HASH_BYTES = 32
SERVER_NAME = "127.0.0.1"  # which is in the certificate of every member
_EXISTS, _NOT_FOUND = "already exists", "not found"


class EtcdDenied(Denied):
    """etcd denied a request: the user has no permission."""

    reason = "EtcdDenied"


class EtcdBusy(Retryable):
    """etcd could not handle a request now."""

    reason = "EtcdBusy"


@dataclass(frozen=True, slots=True)
class ListedMember:
    """A member as etcd lists it; one that has never started has no name."""

    member_id: int
    name: str
    peer_url: str
    learner: bool


def prefix_end(prefix: bytes) -> bytes:
    """The first key after all keys with this prefix."""
    incremented = prefix.rstrip(b"\xff")
    return incremented[:-1] + bytes([incremented[-1] + 1]) if incremented else b"\0"


class EtcdClient:
    """A connection to etcd as one user; the first of the endpoints that answers is used."""

    def __init__(
        self, endpoints: Sequence[str], *, ca: bytes, certificate: bytes, key: bytes
    ) -> None:
        """``endpoints`` are ``host:port`` with IP addresses of one family."""
        credentials = grpc.ssl_channel_credentials(ca, key, certificate)
        family = "ipv6" if endpoints[0].startswith("[") else "ipv4"
        options = (("grpc.enable_http_proxy", 0), ("grpc.ssl_target_name_override", SERVER_NAME))
        target = f"{family}:{','.join(endpoints)}"
        self._channel = grpc.aio.secure_channel(target, credentials, options)

    async def __aenter__(self) -> "EtcdClient":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._channel.close(None)

    async def _call(self, service: str, method: str, request: Message) -> Any:
        """Call a method of the services in ``etcd_rpc.proto``; returns its response message."""
        descriptor = rpc.DESCRIPTOR.services_by_name[service].methods_by_name[method]
        call = self._channel.unary_unary(
            f"/{descriptor.containing_service.full_name}/{method}",
            type(request).SerializeToString,
            GetMessageClass(descriptor.output_type).FromString,
        )
        try:
            return await call(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise _translate(error) from error

    async def _auth(self, method: str, request: Message, accepted: str = "") -> Any:
        """Call the Auth service; an error that contains ``accepted`` counts as success."""
        try:
            return await self._call("Auth", method, request)
        except EtcdBusy as error:
            if not accepted or accepted not in str(error):
                raise
        return None

    # Health

    async def probe(self) -> None:
        """Read one key through the leader; raises if etcd does not answer."""
        await self._call("KV", "Range", rpc.RangeRequest(key=b"\0moxwell", limit=1))

    async def is_auth_enabled(self) -> bool:
        """Whether etcd checks the permissions of users."""
        status = await self._auth("AuthStatus", rpc.AuthStatusRequest())
        return bool(status.enabled)

    async def revision(self) -> int:
        """The current revision of etcd."""
        request = rpc.RangeRequest(key=b"\0moxwell", limit=1)
        return int((await self._call("KV", "Range", request)).header.revision)

    async def snapshot(self, target: Path) -> None:
        """
        Write a snapshot to a new file, as ``etcdctl snapshot save`` does.

        etcd sends the SHA-256 of the content after it; the file ends with it.
        """
        descriptor = rpc.DESCRIPTOR.services_by_name["Maintenance"].methods_by_name["Snapshot"]
        call = self._channel.unary_stream(
            f"/{descriptor.containing_service.full_name}/Snapshot",
            rpc.SnapshotRequest.SerializeToString,
            rpc.SnapshotResponse.FromString,
        )
        target.unlink(missing_ok=True)  # noqa: ASYNC240  a local file
        tail, content = b"", sha256()
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            try:
                async for part in call(rpc.SnapshotRequest(), timeout=SNAPSHOT_SECONDS):
                    file.write(part.blob)
                    seen = tail + part.blob
                    content.update(seen[:-HASH_BYTES])
                    tail = seen[-HASH_BYTES:]
            except grpc.aio.AioRpcError as error:
                raise _translate(error) from error
            file.flush()
            os.fsync(file.fileno())
        if tail != content.digest():
            raise EtcdBusy("the snapshot of etcd is incomplete: its checksum differs")

    # Members

    async def members(self) -> tuple[ListedMember, ...]:
        """All members, as the leader knows them."""
        answer = await self._call("Cluster", "MemberList", rpc.MemberListRequest(linearizable=True))
        return tuple(
            ListedMember(m.ID, m.name, next(iter(m.peerURLs), ""), m.isLearner)
            for m in answer.members
        )

    async def add_learner(self, peer_url: str) -> None:
        """Add a member that does not vote until :meth:`promote`."""
        request = rpc.MemberAddRequest(peerURLs=[peer_url], isLearner=True)
        await self._call("Cluster", "MemberAdd", request)

    async def leader(self) -> int:
        """The id of the leader."""
        return int((await self._call("Maintenance", "Status", rpc.StatusRequest())).leader)

    async def promote(self, member_id: int) -> None:
        """
        Let a learner vote; EtcdBusy while it has not caught up.

        Only the leader does it: with authentication, others forward the request without the user.
        """
        await self._call("Cluster", "MemberPromote", rpc.MemberPromoteRequest(ID=member_id))

    async def update_member(self, member_id: int, peer_url: str) -> None:
        """Change the address by which other members reach one."""
        request = rpc.MemberUpdateRequest(ID=member_id, peerURLs=[peer_url])
        await self._call("Cluster", "MemberUpdate", request)

    async def remove_member(self, member_id: int) -> None:
        """Remove a member; its process exits."""
        await self._call("Cluster", "MemberRemove", rpc.MemberRemoveRequest(ID=member_id))

    # Users and roles

    async def enable_auth(self) -> None:
        """Create the user ``root``, as which the caller is connected, and enable authentication."""
        await self.add_user("root")
        await self._auth("RoleAdd", rpc.AuthRoleAddRequest(name="root"), _EXISTS)
        await self._auth("UserGrantRole", rpc.AuthUserGrantRoleRequest(user="root", role="root"))
        await self._auth("AuthEnable", rpc.AuthEnableRequest())

    async def add_user(self, name: str) -> None:
        """Create a user without a password: only a certificate authenticates it."""
        options = rpc.UserAddOptions(no_password=True)
        await self._auth("UserAdd", rpc.AuthUserAddRequest(name=name, options=options), _EXISTS)

    async def add_prefix_user(self, name: str, prefix: str) -> None:
        """Create a user that may read and write keys of the prefix and nothing else."""
        key = prefix.encode()
        permission = rpc.Permission(
            permType=rpc.Permission.READWRITE, key=key, range_end=prefix_end(key)
        )
        grant = rpc.AuthRoleGrantPermissionRequest(name=name, perm=permission)
        await self.add_user(name)
        await self._auth("RoleAdd", rpc.AuthRoleAddRequest(name=name), _EXISTS)
        await self._auth("RoleGrantPermission", grant)
        await self._auth("UserGrantRole", rpc.AuthUserGrantRoleRequest(user=name, role=name))

    async def delete_prefix_user(self, name: str, prefix: str) -> None:
        """Delete all keys of the prefix, the user and the role."""
        key = prefix.encode()
        deletion = rpc.DeleteRangeRequest(key=key, range_end=prefix_end(key))
        await self._call("KV", "DeleteRange", deletion)
        await self._auth("UserDelete", rpc.AuthUserDeleteRequest(name=name), _NOT_FOUND)
        await self._auth("RoleDelete", rpc.AuthRoleDeleteRequest(role=name), _NOT_FOUND)

    async def users(self) -> tuple[str, ...]:
        """The names of all users."""
        return tuple((await self._auth("UserList", rpc.AuthUserListRequest())).users)

    async def roles(self) -> tuple[str, ...]:
        """The names of all roles."""
        return tuple((await self._auth("RoleList", rpc.AuthRoleListRequest())).roles)

    # Keys

    async def count(self, prefix: str) -> int:
        """How many keys have a prefix; an empty prefix counts all keys."""
        key = prefix.encode() or b"\0"
        end = prefix_end(key) if prefix else b"\0"
        request = rpc.RangeRequest(key=key, range_end=end, count_only=True)
        return int((await self._call("KV", "Range", request)).count)

    async def put(self, key: str, value: str) -> None:
        """Write one key."""
        await self._call("KV", "Put", rpc.PutRequest(key=key.encode(), value=value.encode()))


def _translate(error: grpc.aio.AioRpcError) -> EtcdDenied | EtcdBusy | Unreachable:
    text = error.details() or error.code().name
    if error.code() in {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED}:
        return EtcdDenied(text)
    if error.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}:
        return Unreachable(f"etcd does not answer: {text[:200]}")
    return EtcdBusy(text)
