"""
The etcd that all control planes of an instance share: its files, its ports, its users.

Each tenant is an etcd user with a role for its own prefix, ``/tenants/<uid>/``, and authenticates
with a client certificate. Peers have a CA of their own, so that no tenant can pose as one.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from moxwell.atomic_file import write_private
from moxwell.clock import Clock
from moxwell.embedded.controlplanes.binaries import flags
from moxwell.embedded.controlplanes.binaries.etcd_client import EtcdClient
from moxwell.embedded.controlplanes.supervision.supervisor import Program, ProgramState, Supervisor
from moxwell.embedded.ports import same_or_new_port
from moxwell.errors import Unreachable
from moxwell.pki.certificates import CertificateConfig, KeyPair
from moxwell.pki.folder import CertificateFolder

LOCAL = ("127.0.0.1", "localhost")


class EtcdPorts(msgspec.Struct, frozen=True):
    """The ports etcd listens on."""

    client: int
    peer: int


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
        new_port: Callable[[], int],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """``changed`` is called when its state changes."""
        self.folder, self._supervisor = folder, supervisor
        self._program, self._new_port, self._changed = program, new_port, changed
        self._certificates = CertificateFolder(folder / "pki", clock.now)
        self._auth_enabled = False

    @property
    def key(self) -> Path:
        return self.folder / "etcd"

    @property
    def is_running(self) -> bool:
        """Whether its process has been started and authentication is enabled."""
        return self._auth_enabled and self._supervisor.has(self.key)

    @property
    def ca(self) -> KeyPair:
        """The CA of the client certificates."""
        return self._certificates.ca("ca", "moxwell-etcd")

    async def ensure(self) -> ProgramState:
        """Start etcd and enable authentication; healthy once both are done."""
        state = await self._supervisor.keep(self._describe_program(), self._changed)
        if not state.healthy:
            self._auth_enabled = False
            return state
        if not self._auth_enabled:
            async with self.connect() as etcd:
                if not await etcd.is_auth_enabled():
                    await etcd.enable_auth()
            self._auth_enabled = True
        return state

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
        self._auth_enabled = False
        await self._supervisor.stop(self.key)

    def connect(self) -> EtcdClient:
        """A connection as the user root."""
        root = self._certificates.leaf("root", CertificateConfig(common_name="root"), self.ca)
        return EtcdClient(
            self.ports.client,
            ca=self.ca.certificate,
            certificate=root.certificate,
            key=root.key,
        )

    @property
    def ports(self) -> EtcdPorts:
        """Its ports, kept in a file; a port that another program has taken is replaced."""
        file = self.folder / "ports.json"
        ours = self._supervisor.has(self.key)
        if file.exists():
            known = msgspec.json.decode(file.read_bytes(), type=EtcdPorts)
        else:
            known = EtcdPorts(self._new_port(), self._new_port())
        client = same_or_new_port(known.client, self._new_port, ours=ours)
        wanted = EtcdPorts(client, same_or_new_port(known.peer, self._new_port, ours=ours))
        if wanted != known or not file.exists():
            write_private(file, msgspec.json.encode(wanted))
        return wanted

    def _describe_program(self) -> Program:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        ports = self.ports
        return Program(
            name="etcd",
            argv=flags.etcd(self._program(), self.folder, ports.client, ports.peer),
            folder=self.folder,
            probe=self._probe,
            files=self._certificate_files(),
        )

    def _certificate_files(self) -> tuple[Path, ...]:
        server = CertificateConfig(common_name="etcd", alt_names=LOCAL, client_auth=False)
        peer = CertificateConfig(common_name="etcd", alt_names=LOCAL)
        self._certificates.leaf("server", server, self.ca)
        peer_ca = self._certificates.ca("peer-ca", "moxwell-etcd-peers")
        self._certificates.leaf("peer", peer, peer_ca)
        names = ("ca", "server", "peer-ca", "peer")
        return tuple(self.folder / "pki" / f"{name}.crt" for name in names)

    async def _probe(self) -> str:
        async with self.connect() as etcd:
            await etcd.probe()
        return ""
