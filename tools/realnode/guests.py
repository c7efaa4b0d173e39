"""
The guest plug of the simulated Proxmox: each VM with a config drive becomes a container.

The bootstrap ISO is unpacked into cloud-init's seed folder, because not every kernel can mount
ISO 9660; cloud-init reads it with its own NoCloud data source. The agent commands that Moxwell uses
are answered from the container. Disks other than the boot disk are block devices; a template keeps
what its guest wrote, and clones boot from that.
"""

import asyncio
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from moxwell.controllers.infra.template_build.design import TEMPLATE_TAG
from moxwell.errors import MoxwellError
from moxwell.lab.guests.iso_reader import read_iso
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.guest import GuestAgentNotRunning, GuestVm
from moxwell.lab.proxmox.state import SimRegion, SimVolume
from realnode import container
from realnode.container import NodeContainer
from realnode.disks import DiskFiles, GuestDisks, LoopDisks

SEED = "var/lib/cloud/seed/nocloud"
POLL_SECONDS = 0.3  # between looks at the configuration of a VM
_MAC = re.compile(r"[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}")


@dataclass(slots=True)
class RunningGuest:
    """A container with its disks, and the task that follows the configuration of the VM."""

    container: NodeContainer
    disks: GuestDisks
    watch: "asyncio.Task[None]"


class RealGuests:
    """
    All guests; ``folder`` keeps the files that they write.

    ``layers`` are the root file system of the templates in the world file, ``image`` is that of a
    cloud image that is made a template.
    """

    def __init__(
        self,
        layers: Sequence[Path],
        folder: Path,
        bridge: str,
        regions: Mapping[str, SimRegion] = MappingProxyType({}),
        image: Sequence[Path] = (),
        *,
        without: Sequence[str] = (),
    ) -> None:
        """``without`` are files of the template that guests do not have."""
        self._without = tuple(without)
        self._layers, self._folder, self._bridge = tuple(layers), folder, bridge
        self._image = tuple(image)
        self._regions, self._files = regions, DiskFiles(folder / "disks")
        self._running: dict[tuple[str, int], RunningGuest] = {}
        self._commands: dict[int, dict[str, Any]] = {}
        self._roots: dict[str, tuple[Path, ...]] = {}  # content id of a boot disk -> layers
        self._written: dict[tuple[str, str, str], Path] = {}  # boot disk -> folder of its guest

    async def booted(self, vm: GuestVm) -> None:
        """Boot a container from its config drive, or again from its disk; else it has no system."""
        files, folder = seed(vm), self._folder / f"{vm.region}-{vm.vmid}"
        before = folder in self._written.values()  # its boot disk has what it wrote
        if not (files or before) or (vm.region, vm.vmid) in self._running:
            return
        layers = self._boot_disk(vm, folder)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / "upper" / SEED, ignore_errors=True)  # of an earlier boot
        # without DMI the kubelet reports the machine ID as system UUID
        for path in self._without:
            container.hide(folder / "upper" / path)
        files |= {"etc/machine-id": vm.uuid.replace("-", "").encode() + b"\n"}
        node = await asyncio.to_thread(
            container.start, str(vm.vmid), layers, folder, files, find_mac(vm), self._bridge
        )
        region = self._regions.get(vm.region) or SimRegion(vm.region, "")
        disks = LoopDisks(node.root, region, vm.node, self._files)
        watch = asyncio.create_task(self._watch(vm, node, disks))
        self._running[vm.region, vm.vmid] = RunningGuest(node, disks, watch)

    def _boot_disk(self, vm: GuestVm, folder: Path) -> tuple[Path, ...]:
        """The layers of the boot disk; a new disk with the VMID of an earlier guest is empty."""
        storage, _, rest = str(vm.conf.get("scsi0", "")).partition(",")[0].partition(":")
        region = self._regions.get(vm.region)
        if region is None or storage not in region.storages:
            return self._layers
        volume = region.storages[storage].volumes_on(vm.node)[rest]
        key = (storage, vm.node, f"{rest}@{volume.ctime}")
        if key not in self._written and folder.exists():
            folder.rename(folder.with_name(f"{folder.name}-{len(self._written)}"))
        self._written[key] = folder
        if TEMPLATE_TAG in str(vm.conf.get("tags", "")):  # it is being built from an image
            self._roots.setdefault(volume.content_id, self._image)
        return self._roots.get(volume.content_id, self._layers)

    def content_id(self, storage: str, node: str, volume: SimVolume) -> str:
        """The current content of a disk; that of a boot disk is what its guest wrote."""
        ends = f"{volume.name}@{volume.ctime}"
        of = [(k, f) for k, f in self._written.items() if (k[0], k[2]) == (storage, ends)]
        if not of:
            return self._files.content_id(storage, node, volume)
        (_, folder), made = of[0], f"root-{len(self._roots)}-{volume.content_id}"
        base = self._roots.get(volume.content_id, self._layers)
        self._roots[made] = (folder / "upper", *base)
        return made

    async def _watch(self, vm: GuestVm, node: NodeContainer, disks: GuestDisks) -> None:
        """Follow the disks of the VM until it ends; a guest that powers off stops its VM."""
        while node.outer.poll() is None:
            await asyncio.to_thread(disks.follow, vm.live_config())
            await asyncio.sleep(POLL_SECONDS)
        vm.power_off()

    async def stopped(self, region: str, vmid: int) -> None:
        if found := self._running.pop((region, vmid), None):
            found.watch.cancel()
            await asyncio.wait([found.watch])
            await asyncio.to_thread(found.container.stop)
            await asyncio.to_thread(found.disks.unplug_all)

    async def stop_all(self) -> None:
        """Stop every guest."""
        for region, vmid in list(self._running):
            await self.stopped(region, vmid)

    def handles_shutdown(self, vm: GuestVm) -> bool:
        return (vm.region, vm.vmid) in self._running

    async def agent(self, vm: GuestVm, command: str, args: dict[str, Any]) -> Any:
        found = self._running.get((vm.region, vm.vmid))
        if found is None:
            raise GuestAgentNotRunning
        if command == "shutdown":
            if await asyncio.to_thread(found.container.shut_down):
                vm.power_off()
            return {}
        return await asyncio.to_thread(self._answer, found.container, command, args)

    def _answer(self, guest: NodeContainer, command: str, args: dict[str, Any]) -> Any:
        match command:
            case "ping" | "fstrim":
                return {}
            case "info":
                return {"version": "7.2.0", "supported_commands": []}
            case "network-get-interfaces":
                return [_interface(row) for row in guest.interfaces()]
            case "get-host-name":
                return {"host-name": guest.run("hostname").stdout.strip()}
            case "get-osinfo":
                return _osinfo(guest.run("cat", "/etc/os-release").stdout)
            case "file-read":
                return _file(guest.root / str(args["file"]).lstrip("/"))
            case "exec":
                return self._exec(guest, args)
            case "exec-status":
                return self._commands.pop(int(args["pid"]))
        raise GuestAgentNotRunning

    def _exec(self, guest: NodeContainer, args: dict[str, Any]) -> dict[str, int]:
        words = args["command"]
        argv = words if isinstance(words, list) else str(words).split()
        done = guest.run(*argv)
        number = len(self._commands) + 1
        result = {"exited": 1, "exitcode": done.returncode, "out-data": done.stdout}
        self._commands[number] = result | {"err-data": done.stderr}
        return {"pid": number}


def _file(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise die(f"Agent error: failed to open file: {error.strerror}") from error
    return {"content": data.decode(errors="replace"), "bytes-read": len(data)}


def find_medium(vm: GuestVm) -> bytes | None:
    """The config drive of a VM."""
    for drive, value in vm.conf.items():
        medium = vm.media(drive) if "media=cdrom" in str(value) else None
        if medium is None:
            continue
        try:
            label, _ = read_iso(medium)
        except MoxwellError:
            continue
        if label.lower() == "cidata":
            return medium
    return None


def find_mac(vm: GuestVm) -> str:
    """The MAC of the first NIC."""
    found = _MAC.search(str(vm.conf["net0"]))
    assert found is not None, "Proxmox gives every NIC an address"
    return found[0]


def seed(vm: GuestVm) -> dict[str, bytes]:
    """The files of the VM's config drive, where cloud-init looks for them."""
    medium = find_medium(vm)
    files = read_iso(medium)[1] if medium is not None else {}
    return {f"{SEED}/{name}": data for name, data in files.items()}


def _interface(row: dict[str, Any]) -> dict[str, Any]:
    addresses = [
        {
            "ip-address": address["local"],
            "ip-address-type": "ipv4" if address["family"] == "inet" else "ipv6",
            "prefix": address["prefixlen"],
        }
        for address in row.get("addr_info", ())
    ]
    hardware = row.get("address", "00:00:00:00:00:00")
    return {"name": row["ifname"], "hardware-address": hardware, "ip-addresses": addresses}


def _osinfo(text: str) -> dict[str, str]:
    rows = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    fields = {"id": "ID", "version-id": "VERSION_ID", "pretty-name": "PRETTY_NAME", "name": "NAME"}
    return {name: rows.get(key, "").strip('"') for name, key in fields.items()}
