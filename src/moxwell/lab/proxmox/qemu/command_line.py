"""
Checks that PVE makes while it builds the command line of QEMU, in the order of its code.

They concern machine versions, firmware, USB and network devices, displays and confidential
computing, which a host of the simulator does not offer.
"""

import re
from collections.abc import Iterator

from moxwell.lab.proxmox.bridges import check_mtu, has_bridge
from moxwell.lab.proxmox.config_schema import devices
from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.mappings import check_usb, node_maps
from moxwell.lab.proxmox.qemu import conf as files
from moxwell.lab.proxmox.qemu import machine
from moxwell.lab.proxmox.qemu.identity import QEMU_VERSIONS
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf

OLD_USB_PORTS = 5
_32_BIT = words("486 athlon coreduo kvm32 pentium pentium2 pentium3 qemu32")
_MACHINE = re.compile(r"(?:pc(?:-i440fx|-q35)?|virt)-(\d+)\.(\d+)(?:\.\d+)?(?:\+pve(\d+))?")
_REVISIONS = {(4, 1): 2, (9, 2): 1, (10, 0): 1}  # the newest +pve of a version that has any
_NEW_WINDOWS = words("win8 win10 win11")


def check_machine_version(call: PveCall, conf: Conf) -> None:
    """QEMU must be as new as the machine."""
    kind = devices.read(devices.MACHINE, str(conf.get("machine", ""))).get("type", "")
    match, qemu = _MACHINE.match(kind), QEMU_VERSIONS[min(max(call.major, 8), 9)]
    if match is None:
        return
    version, revision = (int(match[1]), int(match[2])), int(match[3] or 0)
    too_old = f"is too old to run machine type '{kind}', please upgrade node '{call.node}'"
    if version > tuple(int(part) for part in qemu.split(".")[:2]):
        raise die(f"Installed QEMU version '{qemu}' {too_old}")
    if revision > (newest := _REVISIONS.get(version, 0)):
        level = f"max feature level for {version[0]}.{version[1]} is pve{newest}"
        raise die(f"Installed qemu-server ({level}) {too_old}")


def check_firmware(conf: Conf, major: int) -> None:
    kind = devices.read(devices.CPU[min(major, 9)], str(conf.get("cpu", ""))).get("cputype")
    if conf.get("bios") == "ovmf" and kind in _32_BIT:
        raise die("OVMF (UEFI) BIOS is not supported on 32-bit CPU types")


def _usb_ports(conf: Conf) -> Iterator[tuple[int, str]]:
    for number in range(15):
        if conf.get(f"usb{number}"):
            yield number, str(conf[f"usb{number}"])


def check_usb_ports(conf: Conf) -> None:
    """Only the newer controller has more than five ports."""
    kind = devices.read(devices.MACHINE, str(conf.get("machine", ""))).get("type", "")
    match = _MACHINE.match(kind)
    recent = match is None or (int(match[1]), int(match[2])) >= (7, 1)
    if recent and conf.get("ostype") in ("l26", *_NEW_WINDOWS):
        return
    for number, _ in _usb_ports(conf):
        if number >= OLD_USB_PORTS:
            wanted = "machine type >= 7.1 and ostype l26 or windows > 7"
            raise die(f"using usb{number} is only possible with {wanted}")


def check_usb_devices(call: PveCall, conf: Conf) -> None:
    for _, text in _usb_ports(conf):
        values = devices.read(devices.USB, text)
        if "mapping" in values:
            _check_usb_mapping(call, values["mapping"])
        elif "host" not in values:
            raise die("no usb id or path given")


def _check_usb_mapping(call: PveCall, name: str) -> None:
    entries = node_maps(call.region, "usb", name, call.node)
    if not entries:
        raise die(f"USB device mapping not found for '{name}'")
    if len(entries) > 1:
        raise die("More than one USB mapping per host not supported")
    try:
        check_usb(call.region, call.host, name, entries[0])
    except PveException as problem:
        raise die(
            f"USB Mapping invalid (hardware probably changed): {problem.message}"
        ) from problem


def check_display(conf: Conf) -> None:
    """Hosts are installed without the libraries that VirGL needs."""
    if devices.read(devices.VGA, str(conf.get("vga", ""))).get("type") == "virtio-gl":
        raise die(
            "missing libraries for 'virtio-gl' detected! Please install 'libgl1' and 'libegl1'"
        )


def check_confidential(conf: Conf) -> None:
    """No host offers the memory encryption of AMD or Intel."""
    if conf.get("amd-sev"):
        raise die("Your CPU does not support AMD SEV.")
    if conf.get("intel-tdx"):
        raise die("Your CPU does not support Intel TDX.")


def check_nets(call: PveCall, conf: Conf) -> None:
    """PVE reads the bridge of a VirtIO device: in version 9 always, before only for its MTU."""
    machine.check_clipboard(str(conf.get("vga", "")))
    for name, net in files.nets(conf):
        bridge, mtu = net.get("bridge"), net.get("mtu")
        if net.get("model") != "virtio" or not bridge or (call.major < 9 and not mtu):
            continue
        if not has_bridge(call, bridge):
            raise die(f"bridge '{bridge}' does not exist")
        check_mtu(call, name, net)
