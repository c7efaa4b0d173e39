"""
The one etcd that all tenants of an instance share.

Each tenant is a user of etcd, known by its client certificate, with a role that ends at the
tenant's own prefix, ``/tenants/<uid>/``. The authority that signs those certificates lies here, and
the certificate of ``root`` with it; peers have another authority, so that no tenant passes for one.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from moxwell.clock import Clock
from moxwell.embedded.apiserver.auth.ca import write_private
from moxwell.embedded.controlplanes.binaries import flags
from moxwell.embedded.controlplanes.binaries.certificates import Leaf, Pair
from moxwell.embedded.controlplanes.binaries.etcd_client import Etcd
from moxwell.embedded.controlplanes.binaries.files import Shelf, steady_port
from moxwell.embedded.controlplanes.binaries.supervisor import Program, State, Supervisor
from moxwell.errors import Unreachable

LOCAL = ("127.0.0.1", "localhost")


class Ports(msgspec.Struct, frozen=True):
    """Where it listens."""

    client: int
    peer: int


def prefix_of(uid: str) -> str:
    """Where a tenant's keys lie."""
    return f"/tenants/{uid}/"


class SharedEtcd:
    """Kept by a supervisor; ``ready`` tells whether tenants may use it."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        supervisor: Supervisor,
        *,
        program: Callable[[], Path],
        port_of: Callable[[], int],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder, self._supervisor = folder, supervisor
        self._shelf, self._program, self._port_of = Shelf(folder / "pki", clock), program, port_of
        self._guarded, self._changed = False, changed

    @property
    def key(self) -> Path:
        return self.folder / "etcd"

    @property
    def authority(self) -> Pair:
        """Who signs the certificates of tenants."""
        return self._shelf.authority("ca", "moxwell-etcd")

    async def ensure(self) -> State:
        """Have it run; it is well when it answers and tells users apart."""
        program = self._described()
        state = await self._supervisor.keep(program, self._changed)
        if not state.well:
            self._guarded = False
            return state
        if not self._guarded:
            async with self.connect() as etcd:
                if not await etcd.is_guarded():
                    await etcd.guard()
            self._guarded = True
        return state

    async def add(self, uid: str) -> None:
        """A user for a tenant, confined to its prefix."""
        async with self.connect() as etcd:
            await etcd.confine(uid, prefix_of(uid))

    async def remove(self, uid: str) -> None:
        """Leave nothing of a tenant."""
        state = await self.ensure()
        if not state.well:
            raise Unreachable(f"etcd: {state.says}")
        async with self.connect() as etcd:
            await etcd.forget(uid, prefix_of(uid))

    async def end(self) -> None:
        """End it; its data stays."""
        self._guarded = False
        await self._supervisor.end(self.key)

    def connect(self) -> Etcd:
        """A connection as root."""
        root = self._shelf.leaf("root", Leaf(user="root"), self.authority)
        return Etcd(
            self.ports.client,
            ca=self.authority.certificate,
            certificate=root.certificate,
            key=root.key,
        )

    @property
    def ports(self) -> Ports:
        """Where it listens; remembered, and chosen anew where strangers took a port."""
        file = self.folder / "ports.json"
        ours = self._supervisor.has(self.key)
        if file.exists():
            known = msgspec.json.decode(file.read_bytes(), type=Ports)
        else:
            known = Ports(self._port_of(), self._port_of())
        client = steady_port(known.client, self._port_of, ours=ours)
        wanted = Ports(client, steady_port(known.peer, self._port_of, ours=ours))
        if wanted != known or not file.exists():
            write_private(file, msgspec.json.encode(wanted))
        return wanted

    def _described(self) -> Program:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        ports = self.ports
        return Program(
            stem="etcd",
            argv=flags.etcd(self._program(), self.folder, ports.client, ports.peer),
            folder=self.folder,
            probe=self._probe,
            reads=self._files(),
        )

    def _files(self) -> tuple[Path, ...]:
        ca, peers = self.authority, self._shelf.authority("peer-ca", "moxwell-etcd-peers")
        self._shelf.leaf("server", Leaf(user="etcd", names=LOCAL, client=False), ca)
        self._shelf.leaf("peer", Leaf(user="etcd", names=LOCAL), peers)
        pki = self.folder / "pki"
        return tuple(pki / f"{name}.crt" for name in ("ca", "server", "peer-ca", "peer"))

    async def _probe(self) -> str:
        async with self.connect() as etcd:
            await etcd.probe()
        return ""
