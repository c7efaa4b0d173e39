"""
The etcd that all control planes of an instance share: its members, their files, its users.

Each tenant is an etcd user with a role for its own prefix, ``/tenants/<uid>/``, and authenticates
with a client certificate. Peers have a CA of their own, so that no tenant can pose as one. There is
one member for each configured address; they are restarted one after the other.
"""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import structlog

from moxwell.atomic_file import write_private
from moxwell.clock import Clock
from moxwell.embedded.controlplanes.binaries import flags
from moxwell.embedded.controlplanes.binaries.etcd_client import (
    EtcdBusy,
    EtcdClient,
    ListedMember,
)
from moxwell.embedded.controlplanes.binaries.etcd_members import (
    FIRST,
    AddMember,
    AwaitMember,
    EtcdMember,
    EtcdPorts,
    MemberChange,
    PromoteMember,
    RemoveMember,
    UpdateMember,
    next_change,
)
from moxwell.embedded.controlplanes.binaries.rolling import keep_rolling
from moxwell.embedded.controlplanes.supervision.supervisor import Program, ProgramState, Supervisor
from moxwell.embedded.ports import same_or_new_port
from moxwell.errors import MoxwellError, Unreachable
from moxwell.pki.certificates import CertificateConfig, KeyPair
from moxwell.pki.folder import CertificateFolder

log = structlog.get_logger(__name__)
LOCAL = ("127.0.0.1", "localhost")
JOINING_SECONDS, CHECK_SECONDS = 1.0, 30.0  # between two looks at the members


def prefix_of(uid: str) -> str:
    """The prefix of a tenant's keys."""
    return f"/tenants/{uid}/"


class SharedEtcd:
    """Runs etcd under a supervisor and manages a user for each tenant."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        supervisor: Supervisor,
        *,
        program: Callable[[], Path],
        new_port: Callable[[str], int],
        hosts: Sequence[str] = (flags.LOOPBACK,),
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """One member for each of ``hosts``; ``changed`` is called when its state changes."""
        self.folder, self._supervisor, self._clock = folder, supervisor, clock
        self._program, self._new_port, self._changed = program, new_port, changed
        self._hosts = tuple(hosts)
        self._certificates = CertificateFolder(folder / "pki", clock.now)
        self._auth_enabled = self._complete = False
        self._lock = asyncio.Lock()

    async def run(self) -> None:
        """Add and remove members until cancelled."""
        while True:
            await self._clock.sleep(CHECK_SECONDS if self._complete else JOINING_SECONDS)
            if not self._is_supervised():
                continue
            before = self._complete
            try:
                await self.ensure()
            except (MoxwellError, OSError) as error:
                log.warning("members of etcd not changed", error=str(error))
            if self._complete != before:
                self._changed()

    def _is_supervised(self) -> bool:
        return any(program.parent == self.folder for program in self._supervisor.programs())

    @property
    def is_running(self) -> bool:
        """Whether its process has been started and authentication is enabled."""
        return self._auth_enabled and self._is_supervised()

    @property
    def ca(self) -> KeyPair:
        """The CA of the client certificates."""
        return self._certificates.ca("ca", "moxwell-etcd")

    @property
    def urls(self) -> tuple[str, ...]:
        """Where its clients connect."""
        return tuple(member.client_url for member in self.members())

    def answers(self) -> bool:
        """Whether every member answered its last check."""
        keys = [self.folder / f"etcd{member.suffix}" for member in self.members()]
        return all(self._supervisor.state(key).healthy for key in keys)

    async def ensure(self) -> ProgramState:
        """Start etcd and enable authentication; healthy once all members have joined."""
        async with self._lock:
            members = self.members()
            every = (*members, *self._surplus())
            started = [m for m in every if self._is_started(m, members)]
            programs = [self._describe_program(m) for m in started]
            states, _ = await keep_rolling(self._supervisor, programs, self._changed)
            if not any(state.healthy for state in states):
                self._auth_enabled = self._complete = False
                return next(state for state in states if not state.healthy)
            try:
                return await self._ensure_members(members, states)
            except Unreachable as error:
                self._complete = False
                return ProgramState(False, str(error))

    async def _ensure_members(
        self, members: Sequence[EtcdMember], states: Sequence[ProgramState]
    ) -> ProgramState:
        async with self.connect() as etcd:
            if not self._auth_enabled and not await etcd.is_auth_enabled():
                await etcd.enable_auth()
            self._auth_enabled = True
            listed = await etcd.members()
            lost = {m.name for m in members if m.ports.joined and not self._data(m).exists()}
            moved = {m.name for m in members if m.host != self._hosts[m.index]}
            for member in members:
                self._remember_listed(member, listed)
            change = next_change(members, listed, lost, moved)
            self._complete = change is None
            if change is not None:
                await self._apply(etcd, change)
        if self._complete:
            last = next((state.last_exit for state in states if state.last_exit), "")
            return ProgramState(True, "", states[0].pid, 0, last)
        return ProgramState(False, f"{len(states)} of {len(members)} members have started")

    async def _apply(self, etcd: EtcdClient, change: MemberChange) -> None:
        match change:
            case AddMember(member, initial):
                await etcd.add_learner(member.peer_url)
                self._remember(member, initial)
            case AwaitMember(member):  # added, and then this daemon was killed
                if not member.ports.initial:
                    listed = [(m.name, m.peer_url) for m in await etcd.members()]
                    names = [f"{name or member.name}={url}" for name, url in listed]
                    self._remember(member, ",".join(names))
            case PromoteMember(member_id):
                if not await self._promote(etcd, member_id):
                    return
            case UpdateMember(member_id, peer_url):
                await etcd.update_member(member_id, peer_url)
            case RemoveMember(member_id, name):
                await etcd.remove_member(member_id)
                await self._forget(name)
        log.info("etcd members changed", change=type(change).__name__)

    async def _promote(self, etcd: EtcdClient, member_id: int) -> bool:
        """Ask the leader; False while the learner has not caught up."""
        leader = await etcd.leader()
        name = next((m.name for m in await etcd.members() if m.member_id == leader), "")
        at = next((m for m in (*self.members(), *self._surplus()) if m.name == name), None)
        try:
            async with self.connect(at) as connected:
                await connected.promote(member_id)
        except EtcdBusy as error:
            log.info("etcd member catches up", reason=str(error))
            return False
        return True

    def _remember(self, member: EtcdMember, initial: str) -> None:
        known = msgspec.structs.replace(member.ports, initial=initial, joined=False, votes=False)
        write_private(self._ports_file(member.suffix), msgspec.json.encode(known))

    def _remember_listed(self, member: EtcdMember, listed: Sequence[ListedMember]) -> None:
        found = next((m for m in listed if m.name == member.name), None)
        if found is not None:
            known = msgspec.structs.replace(member.ports, joined=True, votes=not found.learner)
            if known != member.ports:
                write_private(self._ports_file(member.suffix), msgspec.json.encode(known))

    async def _forget(self, name: str) -> None:
        """Stop a removed member and delete its files; it may be added again later."""
        suffix = name.removeprefix(FIRST)
        if not name.startswith(FIRST):  # it never started, or it is not ours
            return
        await self._supervisor.stop(self.folder / f"etcd{suffix}")
        await asyncio.to_thread(shutil.rmtree, self.folder / f"data{suffix}", ignore_errors=True)
        self._ports_file(suffix).unlink(missing_ok=True)

    def _is_started(self, member: EtcdMember, members: Sequence[EtcdMember]) -> bool:
        """Whether a member may run: the first one alone makes the cluster, others are added."""
        waits = bool(member.ports.initial) and not member.ports.joined
        if waits or self._data(member).exists():
            return True
        return member.index == 0 and not any(self._data(other).exists() for other in members)

    async def add(self, uid: str) -> None:
        """Create the user of a tenant, confined to its prefix."""
        async with self.connect() as etcd:
            await etcd.add_prefix_user(uid, prefix_of(uid))

    async def remove(self, uid: str) -> None:
        """Delete a tenant's keys, user and role."""
        state = await self.ensure()
        if not state.healthy:
            raise Unreachable(f"etcd: {state.message}")
        async with self.connect() as etcd:
            await etcd.delete_prefix_user(uid, prefix_of(uid))

    async def stop(self) -> None:
        """Stop etcd; its data is kept."""
        async with self._lock:
            self._auth_enabled = self._complete = False
            keys = {self._key(m) for m in (*self.members(), *self._surplus())}
            running = {p for p in self._supervisor.programs() if p.parent == self.folder}
            await asyncio.gather(*(self._supervisor.stop(key) for key in sorted(keys | running)))

    def connect(self, member: EtcdMember | None = None) -> EtcdClient:
        """A connection to one or any member as the user root."""
        root = self._certificates.leaf("root", CertificateConfig(common_name="root"), self.ca)
        every = [*self.members(), *self._surplus()]
        voting = [m for m in every if m.ports.votes] or every
        return EtcdClient(
            [m.endpoint for m in ([member] if member else voting)],
            ca=self.ca.certificate,
            certificate=root.certificate,
            key=root.key,
        )

    def members(self) -> tuple[EtcdMember, ...]:
        """The members that should exist; a port that another program has taken is replaced."""
        return tuple(self._member(index, host) for index, host in enumerate(self._hosts))

    def _member(self, index: int, host: str) -> EtcdMember:
        suffix = f"-{index}" if index else ""
        file = self._ports_file(suffix)
        ours = self._supervisor.has(self.folder / f"etcd{suffix}")
        known = _read_ports(file)
        if known is None:
            known = EtcdPorts(self._new_port(host), self._new_port(host), host=host)
        elif len(self._hosts) == 1:  # nobody else knows the address of a single member
            known = msgspec.structs.replace(known, host=host)
        new = partial(self._new_port, known.host)
        wanted = msgspec.structs.replace(
            known,
            client=same_or_new_port(known.client, new, ours=ours, host=known.host),
            peer=same_or_new_port(known.peer, new, ours=ours, host=known.host),
        )
        if wanted != _read_ports(file):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_private(file, msgspec.json.encode(wanted))
        return EtcdMember(index, wanted)

    def _surplus(self) -> list[EtcdMember]:
        """Members that are to be removed; until then their votes count."""
        found = []
        for file in self.folder.glob("ports-*.json"):
            index, known = int(file.stem.partition("-")[2]), _read_ports(file)
            if index >= len(self._hosts) and known is not None:
                found.append(EtcdMember(index, known))
        return found

    def _ports_file(self, suffix: str) -> Path:
        return self.folder / f"ports{suffix}.json"

    def _data(self, member: EtcdMember) -> Path:
        return self.folder / f"data{member.suffix}"

    def _key(self, member: EtcdMember) -> Path:
        return self.folder / f"etcd{member.suffix}"

    def _describe_program(self, member: EtcdMember) -> Program:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Program(
            name=self._key(member).name,
            argv=flags.etcd(self._program(), self.folder, member),
            folder=self.folder,
            probe=partial(self._probe, member),
            files=self._certificate_files((*self._hosts, *(m.host for m in self.members()))),
        )

    def _certificate_files(self, hosts: Sequence[str]) -> tuple[Path, ...]:
        names = tuple(dict.fromkeys((*LOCAL, *hosts)))
        server = CertificateConfig(common_name="etcd", alt_names=names, client_auth=False)
        peer = CertificateConfig(common_name="etcd", alt_names=names)
        self._certificates.leaf("server", server, self.ca)
        peer_ca = self._certificates.ca("peer-ca", "moxwell-etcd-peers")
        self._certificates.leaf("peer", peer, peer_ca)
        files = ("ca", "server", "peer-ca", "peer")
        return tuple(self.folder / "pki" / f"{name}.crt" for name in files)

    async def _probe(self, member: EtcdMember) -> str:
        async with self.connect(member) as etcd:
            try:
                await etcd.probe()
            except EtcdBusy as error:
                if "learner" not in str(error):
                    raise
        return ""


def _read_ports(file: Path) -> EtcdPorts | None:
    return msgspec.json.decode(file.read_bytes(), type=EtcdPorts) if file.exists() else None
