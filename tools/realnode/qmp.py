"""
The disks of a QEMU machine: SCSI disks that are plugged, resized and unplugged through QMP.

The devices are those of Proxmox: ``scsi-hd`` on virtio-scsi with the WWN and the serial number of
the drive.
"""

import json
import socket
from pathlib import Path
from typing import Any

from moxwell.lab.guests.disks import ScsiDisk
from moxwell.lab.proxmox.state import SimRegion
from realnode.disks import DiskFiles, GuestDisks

PATIENCE_SECONDS = 120
BUS = "scsihw0"


class QmpError(Exception):
    """QEMU refuses a command."""


class Monitor:
    """QEMU's monitor on a UNIX socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE_SECONDS)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")
        self._next()  # the greeting
        self.run("qmp_capabilities")

    def run(self, command: str, **arguments: Any) -> Any:
        """The answer to a command; events before it are ignored."""
        question = {"execute": command, "arguments": arguments}
        self._socket.sendall(json.dumps(question).encode() + b"\n")
        while True:
            answer = self._next()
            if "error" in answer:
                raise QmpError(f"{command}: {answer['error'].get('desc')}")
            if "return" in answer:
                return answer["return"]

    def wait_for(self, event: str, device: str) -> None:
        """Wait for an event about a device."""
        while True:
            answer = self._next()
            if answer.get("event") == event and answer["data"].get("device") == device:
                return

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def _next(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise QmpError("QEMU ended")
        found: dict[str, Any] = json.loads(line)
        return found


class QemuDisks(GuestDisks):
    """The disks of one machine; ``socket`` is that of its monitor."""

    def __init__(self, monitor: Path, region: SimRegion, node: str, files: DiskFiles) -> None:
        super().__init__(region, node, files)
        self._path = monitor
        self._monitor: Monitor | None = None

    def _connected(self) -> Monitor:
        if self._monitor is None:
            self._monitor = Monitor(self._path)
        return self._monitor

    def _plug(self, disk: ScsiDisk, file: Path) -> None:
        monitor, drive = self._connected(), f"drive-{disk.slot}"
        source = {"driver": "file", "filename": str(file)}
        monitor.run("blockdev-add", **{"node-name": drive, "driver": "raw", "file": source})
        number = int(disk.slot.removeprefix("scsi"))
        device = {"driver": "scsi-hd", "bus": f"{BUS}.0", "scsi-id": number, "id": disk.slot}
        identity = {"wwn": int(disk.wwn, 16)} if disk.wwn else {}
        serial = {"serial": disk.serial} if disk.serial else {}
        monitor.run("device_add", **device, **identity, **serial, drive=drive)

    def _resize(self, disk: ScsiDisk, file: Path) -> None:
        name = {"node-name": f"drive-{disk.slot}"}
        self._connected().run("block_resize", **name, size=disk.size)

    def _unplug(self, slot: str) -> None:
        if self._ended:  # the machine is gone
            return
        monitor = self._connected()
        monitor.run("device_del", id=slot)
        monitor.wait_for("DEVICE_DELETED", slot)
        monitor.run("blockdev-del", **{"node-name": f"drive-{slot}"})
