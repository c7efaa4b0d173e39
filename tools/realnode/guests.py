"""
The guest plug of the simulated Proxmox: each VM with a config drive becomes a container.

The bootstrap ISO is unpacked into cloud-init's seed folder, because not every kernel can mount
ISO 9660; cloud-init reads it with its own NoCloud data source. The agent commands that Moxwell uses
are answered from the container.
"""

import asyncio
import re
from pathlib import Path
from typing import Any

from moxwell.errors import MoxwellError
from moxwell.lab.guests.iso_reader import read_iso
from moxwell.lab.proxmox.guest import GuestAgentNotRunning, GuestVm
from realnode import container
from realnode.container import NodeContainer

SEED = "var/lib/cloud/seed/nocloud"
_MAC = re.compile(r"[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}")


class RealGuests:
    """All guests; ``folder`` keeps the files that they write."""

    def __init__(self, template: Path, folder: Path, bridge: str) -> None:
        self._template, self._folder, self._bridge = template, folder, bridge
        self._running: dict[tuple[str, int], NodeContainer] = {}
        self._commands: dict[int, dict[str, Any]] = {}

    async def booted(self, vm: GuestVm) -> None:
        """Boot a container from the config drive; a VM without one has no operating system."""
        files = seed(vm)
        if not files or (vm.region, vm.vmid) in self._running:
            return
        folder = self._folder / f"{vm.region}-{vm.vmid}"
        folder.mkdir(parents=True, exist_ok=True)
        # without DMI the kubelet reports the machine ID as system UUID
        files |= {"etc/machine-id": vm.uuid.replace("-", "").encode() + b"\n"}
        found = _MAC.search(str(vm.conf["net0"]))
        assert found is not None, "Proxmox gives every NIC an address"
        self._running[vm.region, vm.vmid] = await asyncio.to_thread(
            container.start, str(vm.vmid), self._template, folder, files, found[0], self._bridge
        )

    async def stopped(self, region: str, vmid: int) -> None:
        if found := self._running.pop((region, vmid), None):
            await asyncio.to_thread(found.stop)

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
            if await asyncio.to_thread(found.shut_down):
                vm.power_off()
            return {}
        return await asyncio.to_thread(self._answer, found, command, args)

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


def seed(vm: GuestVm) -> dict[str, bytes]:
    """The files of the VM's config drive, where cloud-init looks for them."""
    for drive, value in vm.conf.items():
        medium = vm.media(drive) if "media=cdrom" in str(value) else None
        if medium is None:
            continue
        try:
            label, files = read_iso(medium)
        except MoxwellError:
            continue
        if label.lower() == "cidata":
            return {f"{SEED}/{name}": data for name, data in files.items()}
    return {}


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
