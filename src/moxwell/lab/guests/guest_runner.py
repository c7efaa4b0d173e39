"""
Runs the operating systems of all simulated guests; implements ``GuestOs`` of the simulator.

``booted`` starts a guest as an asyncio task, ``stopped`` cancels it, ``agent`` answers for its
guest agent. What a real guest keeps on its disk (files, its kubelet kubeconfig) is kept by SMBIOS
UUID and survives restarts of the guest and, through ``save`` and ``load``, of the lab. A guest with
invalid bootstrap data boots, answers the agent, reports ``error`` for cloud-init and does not join
its cluster. A guest that runs ``kubeadm init``, or is a control plane of Talos, is a control plane
node, whose API server is served by a ``ControlPlaneServer``.
"""

import asyncio
import re
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import structlog

from moxwell.api.requests import Handler
from moxwell.clock import Clock
from moxwell.errors import Invalid, MoxwellError, Unreachable
from moxwell.kube.client import Kube
from moxwell.kube.kubeconfig import ApiAccess
from moxwell.lab.guests import agent, hardware, join, kubeadm_init, talos
from moxwell.lab.guests.config_drive import ConfigDrive, find_config_drive
from moxwell.lab.guests.control_plane import (
    ControlPlaneServer,
    GuestControlPlane,
    KubeadmInit,
    find_init,
    joined_control_plane,
)
from moxwell.lab.guests.hardware import SimulatedVm
from moxwell.lab.guests.join import NodeKubeconfig, StoredKubeconfig
from moxwell.lab.guests.kubelet import NodeFacts, SimulatedKubelet
from moxwell.lab.guests.pod_usage import ResourceUsage, VmLoad
from moxwell.lab.guests.running_kubelets import RunningKubelet, RunningKubelets
from moxwell.lab.guests.shared_connections import (
    GuestHandler,
    Proxy,
    SharedConnections,
    reached_servers,
)
from moxwell.lab.guests.static_pods import MirrorPods, static_pods
from moxwell.lab.guests.talos import TalosNode, TalosNodes
from moxwell.lab.guests.userdata import KubeadmJoin, find_join, read_user_data, result_of_scripts
from moxwell.pki.certificates import public_key_hash
from moxwell.task_group import LongLivedTasks, find_error

SENTINEL = "/run/cluster-api/bootstrap-success.complete"
DEFAULT_VERSION = "v1.34.1"
OLD_FIELDS = {"seed": "config_drive", "joined": "kubeconfig", "plane": "control_plane"}
_UUID = re.compile(r"uuid=([0-9a-f-]{36})")
log = structlog.get_logger()


class PersistedGuest(msgspec.Struct, frozen=True):
    """The data of a guest that survives a power cycle."""

    config_drive: ConfigDrive | None = None
    kubeconfig: StoredKubeconfig | None = None
    args: Mapping[str, str] = {}
    taints: tuple[Mapping[str, Any], ...] = ()
    files: Mapping[str, str] = {}
    control_plane: GuestControlPlane | None = None


@dataclass(slots=True)
class _Boot:
    """One boot of one guest."""

    vm: SimulatedVm
    system: agent.OperatingSystem
    task: asyncio.Task[None] | None = None
    handlers: list[GuestHandler] = field(default_factory=list)
    control_plane: GuestControlPlane | None = None


class GuestRunner:
    """All guests of all regions; ``run`` owns their tasks."""

    def __init__(
        self,
        dial: Callable[[ApiAccess], Handler],
        clock: Clock,
        on_change: Callable[[], Awaitable[None]] | None = None,
        control_planes: ControlPlaneServer | None = None,
        proxy: Proxy | None = None,
    ) -> None:
        """``on_change`` is awaited when persistent data changed; for ``proxy`` see its module."""
        self._clock, self._on_change = clock, on_change
        self._control_planes = control_planes
        self._boots: dict[tuple[str, int], _Boot] = {}
        self._persisted: dict[str, PersistedGuest] = {}
        self._tasks = LongLivedTasks()
        self._connections = SharedConnections(dial, clock, self._tasks.spawn, proxy)
        self.kubelets = RunningKubelets()
        self.talos = TalosNodes(clock)

    async def run(self) -> None:
        """Run the guests until cancelled."""
        await self._tasks.run(self._stop_all)

    async def _stop_all(self) -> None:
        for region, vmid in list(self._boots):
            await self.stopped(region, vmid)

    # GuestOs

    async def booted(self, vm: SimulatedVm) -> None:
        await self._tasks.wait_ready()
        await self.stopped(vm.region, vm.vmid)
        boot = _Boot(vm, agent.OperatingSystem(hostname=vm.name, halt=vm.power_off))
        boot.system.connections = lambda: reached_servers(boot.handlers)
        self._boots[vm.region, vm.vmid] = boot
        boot.task = self._tasks.spawn(self._run_boot(boot))

    async def stopped(self, region: str, vmid: int) -> None:
        boot = self._boots.pop((region, vmid), None)
        if boot is None:
            return
        if boot.task is not None:
            boot.task.cancel()
        await self._close_handlers(boot)
        if boot.control_plane is not None and self._control_planes is not None:
            await self._control_planes.release(boot.control_plane, boot.vm.uuid)

    async def agent(self, vm: SimulatedVm, command: str, args: dict[str, Any]) -> Any:
        boot = self._boots.get((vm.region, vm.vmid))
        if boot is None:
            raise Unreachable("the guest is not running")
        return agent.answer(boot.system, command, args)

    def handles_shutdown(self, vm: SimulatedVm) -> bool:
        return (vm.region, vm.vmid) in self._boots

    # Persistence

    async def _changed(self) -> None:
        """What a guest has on its disk survives a crash of the lab from now on."""
        if self._on_change is not None:
            await self._on_change()

    def save(self) -> bytes:
        """Encode the persistent data of all guests; contains private keys."""
        return msgspec.json.encode(self._persisted)

    def load(self, data: bytes) -> None:
        """Restore what ``save`` encoded; also reads the field names of older versions."""
        found = msgspec.json.decode(data)
        for guest in found.values():
            for old, new in OLD_FIELDS.items():
                if old in guest:
                    guest[new] = guest.pop(old)
        self._persisted = msgspec.convert(found, dict[str, PersistedGuest])

    def keep_only(self, smbios: Iterable[str]) -> bool:
        """Delete the data of guests that no longer exist; returns whether any was deleted."""
        known = {v for line in smbios for v in _UUID.findall(line.lower())}
        known |= {boot.vm.uuid.lower() for boot in self._boots.values()}
        gone = [uuid for uuid in self._persisted if uuid.lower() not in known]
        for uuid in gone:
            del self._persisted[uuid]
        if gone and self._control_planes is not None:
            self._control_planes.keep_only(
                {d.control_plane.id for d in self._persisted.values() if d.control_plane}
            )
        return bool(gone)

    # One boot

    async def _run_boot(self, boot: _Boot) -> None:
        """One boot; what its user data or its cluster contain ends no other guest."""
        error = await find_error(self._boot(boot))
        if error is None:
            return
        boot.system.cloud_init = "error"
        text = _described(error)
        boot.system.files["/var/log/cloud-init.log"] = text
        log.info("guest boot failed", vmid=boot.vm.vmid, region=boot.vm.region, error=text)

    async def _boot(self, boot: _Boot) -> None:
        persisted = self._persisted.get(boot.vm.uuid)
        if persisted is None:
            persisted = self._persisted[boot.vm.uuid] = PersistedGuest(
                config_drive=find_config_drive(boot.vm)
            )
            await self._changed()
        config_drive = persisted.config_drive
        network = config_drive.network if config_drive else {}
        boot.system.interfaces = hardware.interfaces(boot.vm.conf, network)
        boot.system.files.update(persisted.files)
        if config_drive is None:
            boot.system.cloud_init = "done"
            return
        boot.system.hostname = config_drive.hostname or boot.vm.name
        joined, cards = persisted.kubeconfig is not None, boot.system.interfaces
        with self.talos.running(config_drive, cards, joined=joined) as node:
            if not joined:
                persisted = await self._first_boot(boot, config_drive, node)
            boot.system.cloud_init = "done"
            if persisted.kubeconfig is not None:
                await self._serve(boot, persisted.control_plane)
                await self._run_node(boot, config_drive, persisted)

    async def _first_boot(
        self, boot: _Boot, config_drive: ConfigDrive, node: TalosNode | None
    ) -> PersistedGuest:
        user_data = read_user_data(config_drive)
        boot.system.hostname = user_data.hostname or boot.system.hostname
        boot.system.files.update(user_data.files)
        join_config, init = find_join(user_data), find_init(user_data)
        persisted = PersistedGuest(config_drive=config_drive, files=user_data.files)
        if result := result_of_scripts(user_data):
            await self._clock.sleep(boot.vm.setup_seconds)
            boot.system.files.update(result)
        if node is not None:
            persisted = await self._run_talos(boot, config_drive, node)
        elif init is not None:
            persisted = await self._run_init(boot, config_drive, init, user_data.files)
        elif join_config is not None:
            persisted = await self._run_join(boot, config_drive, join_config, user_data.files)
        self._persisted[boot.vm.uuid] = persisted
        await self._changed()
        return persisted

    async def _run_join(
        self,
        boot: _Boot,
        config_drive: ConfigDrive,
        join_config: KubeadmJoin,
        files: Mapping[str, str],
    ) -> PersistedGuest:
        await self._clock.sleep(boot.vm.setup_seconds)
        control_plane = joined_control_plane(join_config, files, _version(config_drive))
        kubeconfig = await join.join_cluster(join_config, self._dial_for(boot), self._clock)
        all_files = _files_after_success(boot, files, sentinel=join_config.sentinel)
        stored = await join.save(kubeconfig)
        return PersistedGuest(
            config_drive,
            stored,
            join_config.kubelet_args,
            join_config.taints,
            all_files,
            control_plane,
        )

    async def _run_init(
        self, boot: _Boot, config_drive: ConfigDrive, init: KubeadmInit, files: Mapping[str, str]
    ) -> PersistedGuest:
        await self._clock.sleep(boot.vm.setup_seconds)
        await self._serve(boot, init.control_plane)
        kubeconfig = await kubeadm_init.initialize(init, self._dial_for(boot), self._clock)
        all_files = _files_after_success(boot, files, sentinel=init.sentinel)
        stored = await join.save(kubeconfig)
        return PersistedGuest(
            config_drive, stored, init.kubelet_args, init.taints, all_files, init.control_plane
        )

    async def _run_talos(
        self, boot: _Boot, config_drive: ConfigDrive, node: TalosNode
    ) -> PersistedGuest:
        member, dial = node.member, self._dial_for(boot)
        await self._clock.sleep(boot.vm.setup_seconds)
        await node.wait_for_etcd(dial, self._clock)
        await self._serve(boot, member.control_plane)
        stored = await join.save(await talos.initialize(member, dial, self._clock))
        args, taints, plane = member.kubelet_args, member.taints, member.control_plane
        return PersistedGuest(config_drive, stored, args, taints, control_plane=plane)

    async def _serve(self, boot: _Boot, control_plane: GuestControlPlane | None) -> None:
        """Make the guest a member of this control plane."""
        if control_plane is None:
            return
        if self._control_planes is None:
            raise Invalid("control planes on guests are not supported here")
        boot.control_plane = control_plane
        await self._control_planes.serve(control_plane, boot.vm.uuid)

    async def _run_node(
        self, boot: _Boot, config_drive: ConfigDrive, persisted: PersistedGuest
    ) -> None:
        if persisted.kubeconfig is None:
            raise Invalid("the guest has not joined a cluster")
        kubeconfig = join.restore(persisted.kubeconfig)
        await self._close_handlers(boot)  # of the join
        handler = self._connections.dial(kubeconfig.access)
        boot.handlers.append(handler)
        await handler.open()
        kube = Kube(handler, manager="kubelet")
        facts = _node_facts(boot, config_drive, persisted, kubeconfig)
        kubelet = SimulatedKubelet(
            kube,
            facts,
            self._clock,
            boot.vm.live_config,
            self._connections.pods(kubeconfig.access),
            partial(_report_usage, boot.vm, facts),
        )
        cluster = public_key_hash(kubeconfig.access.ca.encode())
        running = RunningKubelet(facts, lambda: kubelet.pods, lambda: VmLoad(*boot.vm.load()))
        remove = self.kubelets.add(cluster, running)
        try:
            await self._run_kubelet(boot, persisted, kubeconfig, kubelet, kube)
        finally:
            remove()

    async def _run_kubelet(
        self,
        boot: _Boot,
        persisted: PersistedGuest,
        kubeconfig: NodeKubeconfig,
        kubelet: SimulatedKubelet,
        kube: Kube,
    ) -> None:
        dial = self._dial_for(boot)
        if persisted.control_plane is None:
            await kubelet.run()
            return
        pods = static_pods(persisted.control_plane, persisted.files)
        async with asyncio.TaskGroup() as group:
            group.create_task(kubelet.run())
            group.create_task(MirrorPods(kube, kubeconfig.node_name, pods, self._clock).run())
            labeler = kubeadm_init.ControlPlaneLabeler(
                persisted.control_plane, kubeconfig.node_name, dial, self._clock
            )
            group.create_task(labeler.run())

    async def _close_handlers(self, boot: _Boot) -> None:
        handlers, boot.handlers = boot.handlers, []
        for handler in handlers:
            await handler.close()

    def _dial_for(self, boot: _Boot) -> Callable[[ApiAccess], Handler]:
        def dial(access: ApiAccess) -> Handler:
            handler = self._connections.dial(access)
            boot.handlers.append(handler)
            return handler

        return dial


def _described(error: BaseException) -> str:
    """An error of ours, or where another one happened: its text may be from the user data."""
    if isinstance(error, MoxwellError):
        return str(error)
    places = traceback.extract_tb(error.__traceback__)
    where = f" in {places[-1].name}" if places else ""
    return f"the guest failed: {type(error).__name__}{where}"


def _version(config_drive: ConfigDrive) -> str:
    return str(config_drive.meta_data.get("kubernetes-version") or DEFAULT_VERSION)


def _files_after_success(
    boot: _Boot, files: Mapping[str, str], *, sentinel: bool
) -> dict[str, str]:
    """The files after kubeadm succeeded."""
    all_files = dict(files)
    if sentinel:
        all_files[SENTINEL] = boot.system.files[SENTINEL] = "success\n"
    return all_files


def _report_usage(vm: SimulatedVm, facts: NodeFacts, usage: ResourceUsage) -> None:
    """Tell Proxmox which shares of its hardware a node uses."""
    vm.report_load(usage.cpu / facts.cpus, usage.memory / (facts.memory_mib << 20))


def _node_facts(
    boot: _Boot, config_drive: ConfigDrive, persisted: PersistedGuest, kubeconfig: NodeKubeconfig
) -> NodeFacts:
    addresses = tuple(a for card in boot.system.interfaces for a in card.addresses)
    return NodeFacts(
        name=kubeconfig.node_name,
        uuid=boot.vm.uuid,
        version=_version(config_drive),
        cpus=hardware.cpus(boot.vm.conf),
        memory_mib=hardware.memory_mib(boot.vm.conf),
        addresses=addresses,
        args=persisted.args,
        taints=persisted.taints,
    )
