"""PCI devices that a VM uses: found on the node, matching their mapping, and used by one VM."""

from moxwell.lab.proxmox.config_schema import devices
from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.mappings import check_pci, node_maps
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf, SimGuest, SimHost

_INVALID = "PCI device mapping invalid (hardware probably changed)"


def reserve(call: PveCall, guest: SimGuest) -> None:
    """Choose the devices of every hostpci option; raises the error of the start task."""
    taken = _devices_in_use(call, guest)
    for key in sorted(k for k in guest.conf if k.startswith("hostpci")):
        values = devices.read(devices.HOSTPCI, guest.conf[key])
        if "mapping" in values:
            choices = _mapped(call, values["mapping"])
        else:
            choices = [_direct(call.host, one) for one in values.get("host", "").split(";") if one]
            if not call.host.pci:
                continue  # the world file declares no devices of this node
        free = [choice for choice in choices if not any(d in taken for d in choice)]
        if not free:
            device = next(d for d in choices[0] if d in taken)
            raise die(f"PCI device '{device}' already in use by VMID '{taken[device]}'")
        taken |= dict.fromkeys(free[0], guest.vmid)
        guest.special[f"pci:{key}"] = ";".join(free[0])


def _devices_in_use(call: PveCall, guest: SimGuest) -> dict[str, int]:
    """The devices of running VMs on this node, with their VMIDs."""
    found: dict[str, int] = {}
    for other in call.region.guests.values():
        if other.running and other.node == call.node and other is not guest:
            for text in _chosen(other.special):
                found |= dict.fromkeys(text.split(";"), other.vmid)
    return found


def _chosen(special: Conf) -> list[str]:
    return [str(value) for key, value in special.items() if key.startswith("pci:")]


def _mapped(call: PveCall, name: str) -> list[list[str]]:
    entries = node_maps(call.region, "pci", name, call.node)
    if not entries:
        raise die(f"PCI device mapping not found for '{name}'")
    mdev = int(call.region.mappings["pci"][name].get("mdev") or 0)
    for values in entries:
        try:
            check_pci(call.region, call.host, name, values, mdev)
        except PveException as problem:
            raise die(f"{_INVALID}: {problem.message} ") from problem
    return [values["path"].split(";") for values in entries]


def _direct(host: SimHost, ident: str) -> list[str]:
    """All functions of an address such as ``01:00`` or ``0000:01:00.0``."""
    full = ident if ident.count(":") > 1 else f"0000:{ident}"
    found = [device for device in host.pci if device == full or device.startswith(f"{full}.")]
    if not found and host.pci:
        raise die(f"no PCI device found for '{full}'")
    return found
