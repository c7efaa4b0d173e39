"""
Machine types and displays: what PVE checks beyond the format of ``machine`` and ``vga``.

The machine version of a Windows guest is pinned when it is created or becomes a Windows guest.
"""

import re

from moxwell.lab.proxmox.config_schema import devices
from moxwell.lab.proxmox.config_schema.property_strings import write
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.state import Value

_VERSIONS = {8: "9.2+pve1", 9: "10.1+pve0"}
_CLIPBOARD = re.compile(r"std|cirrus|vmware|virtio|qxl")
_WINDOWS = ("wxp", "w2k", "w2k3", "w2k8", "wvista", "win7", "win8", "win10", "win11")


def check_clipboard(vga: str) -> None:
    """The clipboard of VNC needs a graphical display."""
    values = devices.read(devices.VGA, vga)
    kind = values.get("type")
    if values.get("clipboard") == "vnc" and kind and not _CLIPBOARD.match(kind):
        raise die(f"vga type {kind} is not compatible with VNC clipboard")


def check_machine(text: str, major: int) -> None:
    """An IOMMU of Intel needs a q35 machine, an address width needs an IOMMU."""
    values = devices.read(devices.MACHINE, text)
    width = values.get("aw-bits") if major >= 9 else None
    if values.get("viommu") == "intel":
        if "q35" not in values.get("type", ""):
            raise die("to use Intel vIOMMU please set the machine type to q35")
        if width and float(width) not in (39, 48):
            raise die("Intel vIOMMU supports only 39 or 48 bits as address width")
    if width and "viommu" not in values:
        raise die("cannot set aw-bits if no vIOMMU is configured")


def versioned(family: str, major: int) -> str:
    """The newest machine of a family (i440fx or q35) that a version of PVE has."""
    return f"pc-{family}-{_VERSIONS[min(max(major, 8), 9)]}"


def pinned(text: Value | None, ostype: Value | None, major: int) -> str | None:
    """The machine to store: with a version for Windows; None if there is nothing to store."""
    values = devices.read(devices.MACHINE, "" if text is None else text)
    kind = values.get("type", "pc")
    if kind in ("pc", "q35") and str(ostype) in _WINDOWS:
        family = "i440fx" if kind == "pc" else kind
        values["type"] = versioned(family, major)
    written = write(devices.MACHINE, values)
    check_machine(written, major)
    return written or None
