"""
A CSI driver with two simulated regions whose guests are nodes, for tests.

Controller and node services are called without gRPC, in virtual or real time. The disks of a node
are those that the simulated guest has live; a sparse file per volume backs them, so a wrong disk
has wrong content. The controller's token has exactly the documented role, unless ``as_root``.
"""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from moxwell.clock import Clock
from moxwell.csi import driver as drivers
from moxwell.csi import permissions
from moxwell.csi.controller import ControllerService
from moxwell.csi.devices import BlockDevice
from moxwell.csi.driver import Driver, DriverSettings
from moxwell.csi.journal import VolumeJournal
from moxwell.csi.mounter import Mounter
from moxwell.csi.node import NodeService
from moxwell.csi.staging import Stager
from moxwell.kube.client import Kube
from moxwell.lab.proxmox import chaos
from moxwell.lab.proxmox.access import auth
from moxwell.lab.proxmox.engine import Engine
from moxwell.lab.proxmox.fault_injection import Fault
from moxwell.lab.proxmox.state import SimAcl, SimGuest, SimRegion
from moxwell.lab.proxmox.world import read_world
from moxwell.pve import property_strings
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.regions import Regions
from moxwell.pve.transport import Transport
from moxwell.pve.values import SecretValue, size_bytes
from moxwell.testing.csi_files import FileMounter
from moxwell.testing.effect_counter import EffectCounter
from moxwell.testing.loop import LoopClock
from moxwell.testing.pve import SimTransport
from moxwell.testing.small_region import grant

TOKEN = "csi@pve!test=11111111-2222-4333-8444-555555555555"
NODES = range(101, 1000)
_HEAD = """
  - name: {region}
    version: "{version}"
    cluster: {region}
    pace: {{bandwidth: 8G, migration_bandwidth: 8G}}
    nodes:
{hosts}
    storages:
      - {{storage: local, type: dir, path: /var/lib/vz, content: [iso, images], capacity: 2T}}
      - {{storage: local-lvm, type: lvmthin, vgname: pve, thinpool: data, content: [images],
         capacity: 2T}}
      - {{storage: local-zfs, type: zfspool, pool: rpool/data, content: [images], capacity: 2T}}
      - {{storage: ceph, type: rbd, pool: vms, content: [images], capacity: 20T}}
      - {{storage: nfs, type: nfs, server: 10.0.0.5, export: /srv, content: [images],
         capacity: 8T}}
      - {{storage: butter, type: btrfs, path: /mnt/butter, content: [images], capacity: 2T}}
      - {{storage: drbd, type: drbd, resourcegroup: thin-r1, content: [images], capacity: 4T,
         shared: 1}}
    access:
      users: [{{userid: root@pam, password: secret}}, {{userid: csi@pve}}]
      tokens: [{{token: "csi@pve!test", secret: 11111111-2222-4333-8444-555555555555,
                privsep: false}}]
    guests:
"""
_GUEST = """      - vmid: {vmid}
        node: {host}
        name: {name}
        running: true
        config:
          memory: 2048
          cores: 2
          scsihw: virtio-scsi-single
          boot: order=scsi0
          smbios1: uuid={uuid}
          scsi0: ceph:vm-{vmid}-disk-0,size=8G
"""


def world_text(guests: int = 2, hosts: int = 2) -> str:
    """Two regions that differ in their release; guests 101, 102, … on all hosts in turn."""
    text = "regions:"
    for region, version in (("r1", "8.4.21"), ("r2", "9.2.11")):
        rows = [f"      - {{name: {region}-h{n}, cpus: 64, memory: 512G}}" for n in range(hosts)]
        text += _HEAD.format(region=region, version=version, hosts="\n".join(rows))
        for n in range(guests):
            uuid = f"00000000-0000-4000-8000-{101 + n:012d}"
            host, name = f"{region}-h{n % hosts}", f"node-{n}"
            text += _GUEST.format(vmid=101 + n, host=host, name=name, uuid=uuid)
    return text


class SimDisks:
    """The disks attached to a simulated guest."""

    def __init__(self, region: SimRegion, vmid: int, folder: Path, *, loops: bool = False) -> None:
        self._region, self._vmid, self._folder, self._loops = region, vmid, folder, loops
        self._attached: dict[str, str] = {}

    def _guest(self) -> SimGuest:
        return self._region.guests[self._vmid]

    async def list(self) -> tuple[BlockDevice, ...]:
        found, guest = [], self._guest()
        for slot, text in guest.conf.items():
            parts = property_strings.parse(str(text)) if slot.startswith("scsi") else {}
            if "wwn" in parts and slot != "scsihw" and not guest.special.get(f"unattached:{slot}"):
                size = size_bytes(parts.get("size", "0"))
                path = self.backing(property_strings.volume(str(text)), size)
                found.append(BlockDevice(path, parts["wwn"].lower(), parts.get("serial", ""), size))
        return tuple(found)

    def backing(self, volid: str, size: int) -> str:
        """The file, or loop device on it, with the content of a volume."""
        file = self._folder / f"{self._region.name}-{volid.replace('/', '_')}.img"
        if not file.exists() or file.stat().st_size < size:
            with file.open("ab") as disk:
                disk.truncate(size)
            if str(file) in self._attached:
                subprocess.run(["losetup", "-c", self._attached[str(file)]], check=True)
        if not self._loops:
            return str(file)
        if str(file) not in self._attached:
            made = subprocess.run(
                ["losetup", "-f", "--show", str(file)], check=True, capture_output=True
            )
            self._attached[str(file)] = made.stdout.decode().strip()
        return self._attached[str(file)]

    async def rescan(self) -> None:
        return None

    def close(self) -> None:
        for device in self._attached.values():
            subprocess.run(["losetup", "-d", device], check=False, capture_output=True)


def can_mount(folder: Path) -> bool:
    """Return whether this process can use loop devices and mount."""
    if os.geteuid() != 0:
        return False
    file, target = folder / "try.img", folder / "try"
    target.mkdir()
    with file.open("wb") as disk:
        disk.truncate(16 << 20)
    script = f"mkfs.ext4 -q {file} && mount -o loop {file} {target} && umount {target}"
    return subprocess.run(["sh", "-c", script], check=False, capture_output=True).returncode == 0


class CsiEnvironment:
    """Simulated regions with a driver, its controller service and node services."""

    def __init__(
        self, folder: Path, *, clock: Clock | None = None, guests: int = 2, hosts: int = 2
    ) -> None:
        self.folder, self.clock = folder, clock or LoopClock()
        now = self.clock.now().timestamp()
        worlds = read_world(world_text(guests, hosts), "csi.yaml", now)
        for world in worlds.values():
            grant(world, "csi@pve", permissions.ALL_FEATURES)
            world.access.roles["MoxwellRoot"] = ["Sys.Audit"]
            world.access.acl.append(SimAcl("/", "user", "csi@pve", "MoxwellRoot"))
        self.engine = Engine(worlds, self.clock)
        self.transports: dict[str, SimTransport] = {}
        self.as_root = False
        self.effects: EffectCounter | None = None  # used by the next driver process
        self._disks: list[SimDisks] = []
        self.driver: Driver
        self.controller: ControllerService

    def world(self, region: str = "r1") -> SimRegion:
        return self.engine.runtimes[region].region

    def conf(self, vmid: int, region: str = "r1") -> dict[str, Any]:
        return self.world(region).guests[vmid].conf

    def volumes(self, storage: str, region: str = "r1") -> list[str]:
        """The volumes of the driver on a storage, on any host."""
        by_host = self.world(region).storages[storage].volumes.values()
        return sorted(
            v.name
            for volumes_on_host in by_host
            for v in volumes_on_host.values()
            if "pvc" in v.name
        )

    def all_disks(self, region: str = "r1") -> list[str]:
        """All disks except those the nodes' guests were created with."""
        world = self.world(region)
        return sorted(
            f"{storage.name}:{volume.name}"
            for storage in world.storages.values()
            for volumes_on_host in storage.volumes.values()
            for volume in volumes_on_host.values()
            if volume.content == "images" and (volume.vmid or 0) not in NODES
        )

    def helper_vms(self, region: str = "r1") -> list[int]:
        """The VMIDs of guests that are not nodes."""
        return sorted(vmid for vmid in self.world(region).guests if vmid not in NODES)

    def content(self, volume_id: str) -> str:
        """The content of a volume: a text that clones and copies preserve."""
        region, host, storage, disk = volume_id.split("/", 3)
        by_host = self.world(region).storages[storage].volumes
        found = [
            v
            for key, volumes_on_host in by_host.items()
            for v in volumes_on_host.values()
            if v.name == disk and (not host or key == host)
        ]
        return found[0].content_id

    def write(self, volume_id: str, mark: str) -> None:
        """Set the content of a volume."""
        region, host, storage, disk = volume_id.split("/", 3)
        for key, volumes_on_host in self.world(region).storages[storage].volumes.items():
            if disk in volumes_on_host and (not host or key == host):
                volumes_on_host[disk].content_id = mark

    def sent(self, region: str = "r1") -> list[tuple[str, str]]:
        return self.transports[region].sent

    def fault(self, kind: str, region: str = "r1", **rule: Any) -> None:
        self.engine.faults[region].add(Fault(kind, **rule))

    def chaos(self, what: str, region: str = "r1", **args: Any) -> None:
        chaos.perform(self.engine.runtimes[region], what, args)

    def connect(self, config: RegionConfig) -> Transport:
        if self.as_root:
            world, now = self.world(config.region), self.clock.now().timestamp()
            ticket = auth.make_ticket(world, "root@pam", now)
            headers = {
                "cookie": f"PVEAuthCookie={ticket}",
                "csrfpreventiontoken": auth.make_csrf(world, "root@pam", now),
            }
            made = SimTransport(self.engine, config.region, headers=headers)
        else:
            made = SimTransport(self.engine, config.region, token=TOKEN)
        self.transports[config.region] = made
        counted: Transport = self.effects.pve(made) if self.effects else made
        return counted

    @asynccontextmanager
    async def running(
        self,
        *,
        settings: DriverSettings | None = None,
        kube: Kube | None = None,
        journal: VolumeJournal | None = None,
        regions: tuple[str, ...] = ("r1", "r2"),
    ) -> AsyncIterator["CsiEnvironment"]:
        """Run the driver; a second call simulates a restart."""
        token = TokenAuth("csi@pve!test", SecretValue("x"))
        configs = [RegionConfig(region=r, urls=("https://x",), auth=token) for r in regions]
        made = Regions(configs, self.clock, connect=self.connect)
        self.driver = drivers.assemble(
            made, self.clock, settings=settings, kube=kube, journal=journal
        )
        self.controller = ControllerService(self.driver)
        for region in made.values():
            await region.inventory.refresh()
        runner = asyncio.create_task(made.run())
        try:
            yield self
        finally:
            runner.cancel()
            await asyncio.wait([runner])

    def node(
        self,
        vmid: int = 101,
        region: str = "r1",
        *,
        mounter: Mounter | None = None,
        loops: bool = False,
    ) -> NodeService:
        disks = SimDisks(self.world(region), vmid, self.folder, loops=loops)
        self._disks.append(disks)
        stager = Stager(disks, mounter or FileMounter(), self.clock)
        host = self.world(region).guests[vmid].node
        return NodeService(stager, node_id=node_id(vmid, region), region=region, zone=host)

    async def close(self) -> None:
        for disks in self._disks:
            disks.close()
        await self.engine.close()

    def guests_with(self, volid: str, region: str = "r1") -> list[int]:
        """The guests whose live or pending configuration references a volume."""
        found = []
        for guest in self.world(region).guests.values():
            named = json.dumps([guest.conf, guest.pending])
            if f"{volid}," in named or f'{volid}"' in named:
                found.append(guest.vmid)
        return found


def node_id(vmid: int, region: str = "r1") -> str:
    return f"proxmox://{region}/{vmid}"
