"""
The members of the shared etcd: names, addresses, and the next change of the member list. Pure.

The first member keeps the names of an etcd with one member. A further one is added as a learner,
which does not vote, and promoted when it has caught up, so that a member that does not start costs
no quorum. A member whose data is lost, or whose address is to change, is removed and added again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from moxwell.embedded.controlplanes.binaries.etcd_client import ListedMember
from moxwell.embedded.ports import host_port, https_url

FIRST = "moxwell"
LOOPBACK = "127.0.0.1"


class EtcdPorts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The address of a member; ``initial`` is the member list it was added with."""

    client: int
    peer: int
    initial: str = ""
    host: str = LOOPBACK
    joined: bool = False  # it has started once, so it must have data
    votes: bool = False  # it is no learner, which answers almost nothing


@dataclass(frozen=True, slots=True)
class EtcdMember:
    """A member that should exist."""

    index: int
    ports: EtcdPorts

    @property
    def host(self) -> str:
        return self.ports.host

    @property
    def name(self) -> str:
        return f"{FIRST}-{self.index}" if self.index else FIRST

    @property
    def suffix(self) -> str:
        """What its files have in their names."""
        return f"-{self.index}" if self.index else ""

    @property
    def endpoint(self) -> str:
        return host_port(self.host, self.ports.client)

    @property
    def client_url(self) -> str:
        return https_url(self.host, self.ports.client)

    @property
    def peer_url(self) -> str:
        return https_url(self.host, self.ports.peer)


@dataclass(frozen=True, slots=True)
class AddMember:
    """Add a learner; ``initial`` is the member list that its process is started with."""

    member: EtcdMember
    initial: str


@dataclass(frozen=True, slots=True)
class PromoteMember:
    """Let a learner vote."""

    member_id: int


@dataclass(frozen=True, slots=True)
class UpdateMember:
    """Change the address of a member."""

    member_id: int
    peer_url: str


@dataclass(frozen=True, slots=True)
class RemoveMember:
    """Remove a member that is not wanted, or that has lost its data."""

    member_id: int
    name: str


@dataclass(frozen=True, slots=True)
class AwaitMember:
    """A member has been added and has not started."""

    member: EtcdMember


MemberChange = AddMember | PromoteMember | UpdateMember | RemoveMember | AwaitMember


def next_change(
    wanted: Sequence[EtcdMember],
    listed: Sequence[ListedMember],
    lost: Collection[str] = (),
    moved: Collection[str] = (),
) -> MemberChange | None:
    """
    The next change; None if the list is as wanted.

    ``lost`` are members without data, ``moved`` those at an address that is not configured.
    """
    by_name = {member.name: member for member in wanted}
    by_url = {member.peer_url: member for member in wanted}
    matched: dict[str, ListedMember] = {}
    for found in listed:
        member = by_name.get(found.name) if found.name else by_url.get(found.peer_url)
        if member is None or (found.name in lost and len(listed) > 1):
            return RemoveMember(found.member_id, found.name)
        matched[member.name] = found
    for member in wanted:
        known = matched.get(member.name)
        if known is None:
            names = [(m.name or by_url[m.peer_url].name, m.peer_url) for m in listed]
            return AddMember(member, _initial([*names, (member.name, member.peer_url)]))
        if not known.name:
            return AwaitMember(member)
        if known.peer_url != member.peer_url:
            return UpdateMember(known.member_id, member.peer_url)
        if known.learner:
            return PromoteMember(known.member_id)
    for member in wanted:
        if member.name in moved and len(wanted) > 1:
            return RemoveMember(matched[member.name].member_id, member.name)
    return None


def _initial(members: Sequence[tuple[str, str]]) -> str:
    return ",".join(f"{name}={url}" for name, url in members)
