"""
PCI devices that a VM uses: found on the node, matching their mapping, and used by one VM.

A node of which a world file declares no devices has every device that is named by its address.
"""

from moxwell.lab.proxmox.config_schema import devices
from moxwell.lab.proxmox.config_schema.property_strings import Values
from moxwell.lab.proxmox.errors import PveException, die
from moxwell.lab.proxmox.mappings import check_pci, node_maps
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.state import Conf, SimGuest, SimHost

_PERL = " at /usr/share/perl5/PVE/QemuServer/PCI.pm line 510."
_INVALID = "PCI device mapping invalid (hardware probably changed)"


Choices = dict[str, list[list[str]]]


def parse(call: PveCall, conf: Conf) -> Choices:
    """The devices that each hostpci option allows; raises the error of the start task."""
    found: Choices = {}
    igd = False
    for key in (f"hostpci{number}" for number in range(16)):
        if not conf.get(key):
            continue
        values = devices.read(devices.HOSTPCI, conf[key])
        found[key] = _choices(call, values)
        _check_machine(conf, values, found[key], igd)
        igd = igd or values.get("legacy-igd") == "1"
    return found


def _choices(call: PveCall, values: Values) -> list[list[str]]:
    if "host" in values and "mapping" in values:
        raise die("Cannot set both 'host' and 'mapping'.")
    if "mapping" in values:
        choices = _mapped(call, values["mapping"])
    elif "host" in values:
        found = (_direct(call.host, one) for one in values["host"].split(";") if one)
        choices = [[device for function in found for device in function]]
    else:
        raise die("Either 'host' or 'mapping' must be set.")
    if "mdev" in values and any(len(choice) > 1 for choice in choices):
        raise die("cannot use mediated device with multifunction device")
    return choices


def _check_machine(conf: Conf, values: Values, choices: list[list[str]], taken: bool) -> None:
    """What a machine and a display allow."""
    q35 = "q35" in devices.read(devices.MACHINE, conf.get("machine", "")).get("type", "")
    if values.get("pcie") == "1" and not q35:
        raise die(f"q35 machine model is not enabled{_PERL}")
    if values.get("legacy-igd") != "1":
        return
    if taken:
        raise die("only one device can be assigned in legacy-igd mode")
    if conf.get("vga") != "none":
        raise die("legacy IGD assignment requires VGA mode to be 'none'")
    if values.get("rombar") == "0":
        raise die("legacy IGD assignment requires rombar to be enabled")
    wrong = {
        "x-vga": values.get("x-vga") == "1",
        "mdev": "mdev" in values,
        "q35": q35,
        "multifunction devices": any(len(choice) > 1 for choice in choices),
        "alternate devices": len(choices) > 1,
    }
    for what in (name for name, is_wrong in wrong.items() if is_wrong):
        raise die(f"legacy IGD assignment is not compatible with {what}")
    if choices[0] and not choices[0][0].endswith("02.0"):
        raise die("legacy IGD assignment only works for devices on host bus 00:02.0")


def choose(call: PveCall, guest: SimGuest, options: Choices) -> dict[str, list[str]]:
    """One alternative for each option; those of other VMs are passed over if there are several."""
    taken, used = _devices_in_use(call, guest), set[str]()
    chosen: dict[str, list[str]] = {}
    for key, choices in options.items():
        if len(choices) > 1:
            free = [one for one in choices if not used & set(one) and not taken.keys() & set(one)]
            if not free:
                raise die(f"could not find a free device for '{key}'")
            chosen[key] = free[0]
        else:
            chosen[key] = choices[0]
        for device in chosen[key]:
            if device in used:
                raise die(f"device '{device}' assigned more than once")
            used.add(device)
    return chosen


def reserve(call: PveCall, guest: SimGuest, chosen: dict[str, list[str]]) -> None:
    """Reserve the chosen devices for a VM."""
    taken = _devices_in_use(call, guest)
    for key, ids in chosen.items():
        for device in ids:
            if device in taken:
                raise die(f"PCI device '{device}' already in use by VMID '{taken[device]}'")
        if ids:
            guest.special[f"pci:{key}"] = ";".join(ids)


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
