"""
Every simulated guest that has an operating system: the plug for the simulator.

``booted`` starts a life in the background, ``stopped`` ends it, ``agent`` speaks for it. What a
real guest keeps on its disk (files, the identity it joined with) is kept by SMBIOS UUID and
survives restarts of the guest and, through ``save`` and ``load``, of the lab. A guest whose data is
wrong boots, answers the agent, says ``error`` for cloud-init, and stays out of its cluster. A guest
told to ``kubeadm init`` becomes a control plane, whose API ``planes`` serves from this process.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from moxwell.api.requests import Handler
from moxwell.clock import Clock
from moxwell.errors import Invalid, MoxwellError, Unreachable
from moxwell.kube.client import Kube
from moxwell.kube.kubeconfig import Access
from moxwell.lab.guests import agent, hardware, join, kubeadm_init
from moxwell.lab.guests.config_drive import Seed, read_seed
from moxwell.lab.guests.control_plane import Host, Init, Plane, find_init, joined_plane
from moxwell.lab.guests.hardware import View
from moxwell.lab.guests.join import Membership, Saved
from moxwell.lab.guests.kubelet import Kubelet, NodeFacts
from moxwell.lab.guests.static_pods import Mirrors, static_pods
from moxwell.lab.guests.userdata import Join, find_join, read_user_data

SENTINEL = "/run/cluster-api/bootstrap-success.complete"
DEFAULT_VERSION = "v1.34.1"
_UUID = re.compile(r"uuid=([0-9a-f-]{36})")
log = structlog.get_logger()


class Disk(msgspec.Struct, frozen=True):
    """What a guest still knows after it was switched off."""

    seed: Seed | None = None
    joined: Saved | None = None
    args: Mapping[str, str] = {}
    taints: tuple[Mapping[str, Any], ...] = ()
    files: Mapping[str, str] = {}
    plane: Plane | None = None


@dataclass(slots=True)
class _Life:
    """One boot of one guest."""

    view: View
    system: agent.System
    task: asyncio.Task[None] | None = None
    handlers: list[Any] = field(default_factory=list)
    plane: Plane | None = None


class Guests:
    """All guests of all regions; ``run`` owns their lives."""

    def __init__(
        self,
        dial: Callable[[Access], Handler],
        clock: Clock,
        on_change: Callable[[], None] = lambda: None,
        planes: Host | None = None,
    ) -> None:
        """``on_change`` is called when a disk has changed; ``planes`` serves control planes."""
        self._dial, self._clock, self._on_change = dial, clock, on_change
        self._planes = planes
        self._lives: dict[tuple[str, int], _Life] = {}
        self._disks: dict[str, Disk] = {}
        self._group: asyncio.TaskGroup | None = None
        self._ready = asyncio.Event()

    async def run(self) -> None:
        """Hold the lives; ends only by being cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._ready.set()
                await asyncio.Event().wait()
        finally:
            for region, vmid in list(self._lives):
                await self.stopped(region, vmid)

    # What the simulator calls

    async def booted(self, view: View) -> None:
        await self._ready.wait()
        await self.stopped(view.region, view.vmid)
        life = _Life(view, agent.System(hostname=view.name, halt=view.power_off))
        self._lives[view.region, view.vmid] = life
        if self._group is None:
            raise Unreachable("the lab is not running")
        life.task = self._group.create_task(self._live(life))

    async def stopped(self, region: str, vmid: int) -> None:
        life = self._lives.pop((region, vmid), None)
        if life is None:
            return
        if life.task is not None:
            life.task.cancel()
        for handler in life.handlers:
            if hasattr(handler, "close"):
                await handler.close()
        if life.plane is not None and self._planes is not None:
            await self._planes.leave(life.plane, life.view.uuid)

    async def agent(self, view: View, command: str, args: dict[str, Any]) -> Any:
        life = self._lives.get((view.region, view.vmid))
        if life is None:
            raise Unreachable("nothing runs inside")
        return agent.answer(life.system, command, args)

    def listens(self, view: View) -> bool:
        return (view.region, view.vmid) in self._lives

    # What lasts

    def save(self) -> bytes:
        """All disks, to be kept beside the simulator's state; holds private keys."""
        return msgspec.json.encode(self._disks)

    def load(self, data: bytes) -> None:
        """Take up where ``save`` left."""
        self._disks = msgspec.json.decode(data, type=dict[str, Disk])

    def keep_only(self, smbios: Iterable[str]) -> bool:
        """Forget the disks of guests that were destroyed; whether there were any."""
        known = {v for line in smbios for v in _UUID.findall(line.lower())}
        known |= {life.view.uuid.lower() for life in self._lives.values()}
        gone = [uuid for uuid in self._disks if uuid.lower() not in known]
        for uuid in gone:
            del self._disks[uuid]
        if gone and self._planes is not None:
            self._planes.keep_only({d.plane.id for d in self._disks.values() if d.plane})
        return bool(gone)

    # One life

    async def _live(self, life: _Life) -> None:
        try:
            await self._boot(life)
        except MoxwellError as error:
            life.system.cloud_init = "error"
            life.system.files["/var/log/cloud-init.log"] = str(error)
            log.info(
                "guest stayed out", vmid=life.view.vmid, region=life.view.region, why=str(error)
            )

    async def _boot(self, life: _Life) -> None:
        disk = self._disks.get(life.view.uuid)
        if disk is None:
            disk = self._disks[life.view.uuid] = Disk(seed=_find_seed(life.view))
            self._on_change()
        seed = disk.seed
        network = seed.network if seed else {}
        life.system.interfaces = hardware.interfaces(life.view.conf, network)
        life.system.files.update(disk.files)
        if seed is None:
            life.system.cloud_init = "done"
            return
        life.system.hostname = seed.hostname or life.view.name
        if disk.joined is None:
            disk = await self._first_boot(life, seed)
        life.system.cloud_init = "done"
        if disk.joined is not None:
            await self._serve(life, disk.plane)
            await self._run_node(life, seed, disk)

    async def _first_boot(self, life: _Life, seed: Seed) -> Disk:
        instructions = read_user_data(seed)
        life.system.hostname = instructions.hostname or life.system.hostname
        life.system.files.update(instructions.files)
        asked, init = find_join(instructions), find_init(instructions)
        disk = Disk(seed=seed, files=instructions.files)
        if init is not None:
            disk = await self._init(life, seed, init, instructions.files)
        elif asked is not None:
            disk = await self._join(life, seed, asked, instructions.files)
        self._disks[life.view.uuid] = disk
        self._on_change()
        return disk

    async def _join(self, life: _Life, seed: Seed, asked: Join, files: Mapping[str, str]) -> Disk:
        await self._clock.sleep(life.view.setup_seconds)
        plane = joined_plane(asked, files, _version(seed))
        membership = await join.join_cluster(asked, self._dialler(life), self._clock)
        written = _succeeded(life, files, sentinel=asked.sentinel)
        saved = await join.save(membership)
        return Disk(seed, saved, asked.kubelet_args, asked.taints, written, plane)

    async def _init(self, life: _Life, seed: Seed, init: Init, files: Mapping[str, str]) -> Disk:
        await self._clock.sleep(life.view.setup_seconds)
        await self._serve(life, init.plane)
        membership = await kubeadm_init.initialise(init, self._dialler(life), self._clock)
        written = _succeeded(life, files, sentinel=init.sentinel)
        saved = await join.save(membership)
        return Disk(seed, saved, init.kubelet_args, init.taints, written, init.plane)

    async def _serve(self, life: _Life, plane: Plane | None) -> None:
        """The guest is part of this control plane from now on."""
        if plane is None:
            return
        if self._planes is None:
            raise Invalid("nobody here serves control planes of machines")
        life.plane = plane
        await self._planes.serve(plane, life.view.uuid)

    async def _run_node(self, life: _Life, seed: Seed, disk: Disk) -> None:
        if disk.joined is None:
            raise Invalid("a guest that never joined cannot be a node")
        membership = join.restore(disk.joined)
        dial = self._dialler(life)
        kube = Kube(dial(membership.access), manager="kubelet")
        kubelet = Kubelet(
            kube, _facts(life, seed, disk, membership), self._clock, life.view.plugged
        )
        if disk.plane is None:
            await kubelet.run()
            return
        pods = static_pods(disk.plane, disk.files)
        async with asyncio.TaskGroup() as group:
            group.create_task(kubelet.run())
            group.create_task(Mirrors(kube, membership.node_name, pods, self._clock).run())
            marker = kubeadm_init.Marker(disk.plane, membership.node_name, dial, self._clock)
            group.create_task(marker.run())

    def _dialler(self, life: _Life) -> Callable[[Access], Handler]:
        def dial(access: Access) -> Handler:
            handler = self._dial(access)
            life.handlers.append(handler)
            return handler

        return dial


def _find_seed(view: View) -> Seed | None:
    """The seed on the first medium that has one; a medium that is none is passed over."""
    problem: Invalid | None = None
    for drive in hardware.drives(view.conf):
        medium = view.media(drive)
        if medium is None:
            continue
        try:
            return read_seed(medium)
        except Invalid as error:
            problem = error
    if problem is not None:
        raise problem
    return None


def _version(seed: Seed) -> str:
    return str(seed.meta_data.get("kubernetes-version") or DEFAULT_VERSION)


def _succeeded(life: _Life, files: Mapping[str, str], *, sentinel: bool) -> dict[str, str]:
    """The files after kubeadm has done its work."""
    written = dict(files)
    if sentinel:
        written[SENTINEL] = life.system.files[SENTINEL] = "success\n"
    return written


def _facts(life: _Life, seed: Seed, disk: Disk, membership: Membership) -> NodeFacts:
    addresses = tuple(a for card in life.system.interfaces for a in card.addresses)
    return NodeFacts(
        name=membership.node_name,
        uuid=life.view.uuid,
        version=_version(seed),
        cpus=hardware.cpus(life.view.conf),
        memory_mib=hardware.memory_mib(life.view.conf),
        addresses=addresses,
        args=disk.args,
        taints=disk.taints,
    )
