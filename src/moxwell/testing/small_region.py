"""
A small simulated region for tests of steps: two hosts, a template, our guest, another owner's.

The client has only the documented role. Snapshots leave out what changes by itself (times, process
ids, tasks), so two of them are equal exactly if the step changed nothing.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from moxwell.lab.proxmox import chaos as mischief
from moxwell.lab.proxmox.engine import Engine
from moxwell.lab.proxmox.fault_injection import Fault
from moxwell.lab.proxmox.guest import GuestOs
from moxwell.lab.proxmox.state import SimAcl, SimRegion
from moxwell.lab.proxmox.world import read_world
from moxwell.pve import preflight
from moxwell.pve.client import PveWriter
from moxwell.pve.effects import Owned
from moxwell.pve.ownership import Mark
from moxwell.pve.steps import GuestRef
from moxwell.pve.values import Upid
from moxwell.testing.loop import LoopClock
from moxwell.testing.pve import SimTransport

OURS = Mark("6f0a2c1e-8d5f-4a7b-9c3d-0e1f2a3b4c5d")
THEIRS = Mark("00000000-0000-4000-8000-000000000001")
TOKEN = "moxwell@pve!test=11111111-2222-4333-8444-555555555555"
FEATURES: tuple[preflight.Feature, ...] = (
    "machines", "machine-moves", "volumes", "metadata", "templates", "snapshots", "ha", "pools",
)  # fmt: skip

WORLD = """
regions:
  - name: r1
    version: "{version}"
    cluster: one
    nodes:
      - {{name: pve1, cpus: 8, memory: 64G}}
      - {{name: pve2, cpus: 8, memory: 64G}}
    storages:
      - {{storage: local, type: dir, path: /var/lib/vz, content: [iso, images, import, vztmpl]}}
      - {{storage: shared, type: dir, path: /mnt/shared, shared: 1, content: [iso, images, import]}}
    access:
      users: [{{userid: moxwell@pve}}]
      tokens: [{{token: "moxwell@pve!test", secret: {secret}, privsep: false}}]
    guests:
      - vmid: 9000
        node: pve1
        name: template
        template: true
        config:
          memory: 512
          cores: 1
          agent: "1"
          scsihw: virtio-scsi-single
          boot: order=scsi0
          scsi0: shared:9000/base-9000-disk-0.qcow2,size=2G
          net0: virtio=BC:24:11:00:90:00,bridge=vmbr0
      - vmid: 100
        node: pve1
        name: ours
        config:
          memory: 512
          cores: 1
          agent: "1"
          description: {line}
          tags: {tags}
          scsihw: virtio-scsi-single
          boot: order=scsi0
          scsi0: shared:100/vm-100-disk-0.qcow2,size=2G
          net0: virtio=BC:24:11:00:01:00,bridge=vmbr0
      - vmid: 200
        node: pve1
        name: stranger
        config: {{memory: 512, scsi0: "shared:200/vm-200-disk-0.qcow2,size=1G"}}
    pools: [{{pool: team}}]
"""


def world_text(version: str) -> str:
    secret = TOKEN.rpartition("=")[2]
    return WORLD.format(version=version, secret=secret, line=OURS.line, tags=OURS.tags())


def grant(region: SimRegion, user: str, features: tuple[preflight.Feature, ...]) -> None:
    """Grant a user the documented role, path by path, and nothing else."""
    needs = preflight.needs(region.major, features)
    region.access.roles["Moxwell"] = list(preflight.role(region.major, features))
    for path in sorted({need.path for need in needs}):
        region.access.acl.append(SimAcl(path, "user", user, "Moxwell"))


class SimStage:
    """A simulated region and a client with the documented role."""

    def __init__(
        self, version: str = "8.4.21", guests: Callable[[LoopClock], GuestOs] | None = None
    ) -> None:
        self.clock = LoopClock()
        now = self.clock.now().timestamp()
        regions = read_world(world_text(version), "stage.yaml", now)
        grant(regions["r1"], "moxwell@pve", FEATURES)
        self.guests = guests(self.clock) if guests is not None else None
        self.engine = Engine(regions, self.clock, guest_os=self.guests)
        self.transport = SimTransport(self.engine, "r1", token=TOKEN)
        self.pve = PveWriter(self.transport)
        self.guest = GuestRef("r1", "pve1", 100, OURS)

    def writer(self, owned: Owned) -> PveWriter:
        return PveWriter(self.transport, owned=owned)

    @property
    def region(self) -> SimRegion:
        return self.engine.runtimes["r1"].region

    def conf(self, vmid: int) -> dict[str, Any]:
        """Return a guest's configuration from the simulator's state."""
        return self.region.guests[vmid].conf

    async def settle(self, upid: Upid | None) -> None:
        while upid is not None and self.region.tasks[upid].running:
            await self.clock.sleep(0.2)

    async def done(self, upid: Upid | None) -> str:
        """Wait until a task has ended and return its exit status."""
        await self.settle(upid)
        return str(self.region.tasks[upid].exitstatus) if upid else "OK"

    def mischief(self, what: str, **args: Any) -> None:
        """Let the simulator change something that the client does not cause."""
        mischief.perform(self.engine.runtimes["r1"], what, args)

    def fault(self, kind: str, **rule: Any) -> None:
        """Inject a fault into requests or tasks."""
        self.engine.faults["r1"].add(Fault(kind, **rule))

    def steal(self) -> None:
        conf = self.region.guests[self.guest.vmid].conf
        conf["description"], conf["tags"] = THEIRS.line, THEIRS.tags()

    def snapshot(self) -> Any:
        region = self.region
        return msgspec.to_builtins(
            {
                "guests": {str(g.vmid): _essence(g) for g in region.guests.values()},
                "volumes": {
                    name: {host: sorted(volumes) for host, volumes in store.volumes.items()}
                    for name, store in region.storages.items()
                },
                "ha": {sid: r.options for sid, r in region.ha.resources.items()},
                "rules": region.ha.rules,
                "groups": region.firewall.groups,
                "addresses": region.sdn.addresses,
                "sdn": [region.sdn.vnets, region.sdn.subnets, region.sdn.running],
                "tokens": {u.userid: sorted(u.tokens) for u in region.access.users.values()},
                "pools": {name: sorted(pool.vms) for name, pool in region.pools.items()},
            }
        )

    async def close(self) -> None:
        await self.engine.close()


def _essence(guest: Any) -> dict[str, Any]:
    return {
        "node": guest.node,
        "conf": dict(guest.conf),
        "pending": dict(guest.pending),
        "running": guest.running,
        "snapshots": sorted(guest.snapshots),
        "rules": list(guest.firewall.rules),
        "options": dict(guest.firewall.options),
    }
