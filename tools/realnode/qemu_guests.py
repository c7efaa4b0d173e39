"""The guest plug of the simulated Proxmox whose VMs are QEMU machines in software emulation."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.guest import GuestAgentNotRunning, GuestVm
from moxwell.lab.proxmox.state import SimRegion, SimVolume
from realnode import qemu
from realnode.disks import DiskFiles
from realnode.guests import find_mac, find_medium
from realnode.qemu import AgentError, QemuMachine
from realnode.qmp import QemuDisks, QmpError

POLL_SECONDS = 1.0


class QemuGuests:
    """All machines; each VM with a config drive becomes one."""

    def __init__(
        self,
        layers: Sequence[Path],
        folder: Path,
        bridge: str,
        regions: Mapping[str, SimRegion],
    ) -> None:
        self._layers, self._folder, self._bridge = tuple(layers), folder, bridge
        self._regions, self._files = regions, DiskFiles(folder / "disks")
        self._running: dict[tuple[str, int], QemuMachine] = {}
        self._watches: set[asyncio.Task[None]] = set()

    async def booted(self, vm: GuestVm) -> None:
        medium = find_medium(vm)
        if medium is None or (vm.region, vm.vmid) in self._running:
            return
        folder = self._folder / f"{vm.region}-{vm.vmid}"
        folder.mkdir(parents=True, exist_ok=True)
        machine = await asyncio.to_thread(
            qemu.start, str(vm.vmid), self._layers, folder, medium, find_mac(vm), self._bridge,
            vm.uuid,
        )  # fmt: skip
        self._running[vm.region, vm.vmid] = machine
        monitor = folder / qemu.MONITOR
        disks = QemuDisks(monitor, self._regions[vm.region], vm.node, self._files)
        watch = asyncio.create_task(self._watch(vm, machine, disks))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    def content_id(self, storage: str, node: str, volume: SimVolume) -> str:
        """The current content of a volume."""
        return self._files.content_id(storage, node, volume)

    async def _watch(self, vm: GuestVm, machine: QemuMachine, disks: QemuDisks) -> None:
        """Follow the disks of the VM; a machine that powers off stops its VM."""
        while machine.outer.poll() is None:
            try:
                await asyncio.to_thread(disks.follow, vm.live_config())
            except (OSError, QmpError) as error:
                sys.stderr.write(f"disks of {vm.vmid}: {error}\n")
            await asyncio.sleep(POLL_SECONDS)
        if self._running.get((vm.region, vm.vmid)) is machine:
            vm.power_off()

    async def stopped(self, region: str, vmid: int) -> None:
        if found := self._running.pop((region, vmid), None):
            await asyncio.to_thread(found.stop)

    async def stop_all(self) -> None:
        """Stop every machine."""
        for region, vmid in list(self._running):
            await self.stopped(region, vmid)

    def handles_shutdown(self, vm: GuestVm) -> bool:
        return (vm.region, vm.vmid) in self._running

    async def agent(self, vm: GuestVm, command: str, args: dict[str, Any]) -> Any:
        machine = self._running.get((vm.region, vm.vmid))
        if machine is None:
            raise GuestAgentNotRunning
        if command == "shutdown":
            if await asyncio.to_thread(machine.shut_down):
                vm.power_off()
            return {}
        try:
            if command == "file-read":
                data = await asyncio.to_thread(machine.read_file, str(args["file"]))
                return {"content": data.decode(errors="replace"), "bytes-read": len(data)}
            return await asyncio.to_thread(machine.agent, command)
        except AgentError as error:
            if command == "file-read" and "open" in str(error):
                raise die(f"Agent error: {error}") from error
            raise GuestAgentNotRunning from error
