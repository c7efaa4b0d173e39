"""
Translates a machine's spec to the configuration of its guest. Pure.

Settings that the spec leaves out stay as the template has them. Values are Proxmox property
strings: ``virtio=BC:24:11:…,bridge=vmbr0,tag=5``.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from moxwell.api.infra.cpu_placement import NumaNodeSpec
from moxwell.api.infra.mac_address import mac_of
from moxwell.api.infra.machine import ProxmoxMachineSpec
from moxwell.api.infra.network import NetworkDevice
from moxwell.api.infra.template import ExtraDisk, PciDeviceSpec
from moxwell.api.infra.zone_settings import ZoneSettings
from moxwell.scheduling.numa.cpusets import format_cpus, parse_cpus

ISO_SLOT = "ide2"
BRIDGE = "vmbr0"
CPUS_LINE = "moxwell-cpus"  # the line of a description that the host agent reads
MAX_QUEUES = 64
HOTPLUG = "network,disk,usb"  # Proxmox's default
_CPUS_LINE = re.compile(rf"^\s*{CPUS_LINE}:.*$\n?", re.MULTILINE)
_MODELS = ("virtio", "e1000", "e1000e", "rtl8139", "vmxnet3", "ne2k_pci", "pcnet")


@dataclass(frozen=True, slots=True)
class Changes:
    """Configuration keys to set and keys to delete."""

    put: Mapping[str, str]
    drop: tuple[str, ...] = ()


def wanted_config(
    spec: ProxmoxMachineSpec,
    zone: ZoneSettings,
    *,
    owner: str,
    devices: tuple[NetworkDevice, ...],
    current: Mapping[str, str],
    storage: str = "",
    iso: str = "",
    root: bool = False,
) -> Changes:
    """
    The first configuration write after the clone, without tags.

    ``root``: the login is root@pam with a password, which alone may set the CPU affinity.
    """
    put = compute(spec)
    if root and spec.cpu_pinning:
        put["affinity"] = format_cpus(parse_cpus(spec.cpu_pinning.cpus))
    if spec.numa_nodes and "memory" in current.get("hotplug", ""):
        put["hotplug"] = HOTPLUG  # Proxmox refuses memory hotplug beside numaN
    put["smbios1"] = _smbios(current.get("smbios1", ""), owner, spec.instance_type or "")
    if not (spec.checks and spec.checks.skip_qemu_guest_agent) and not _has_agent(current):
        put["agent"] = "enabled=1"
    queues = _queues(spec, current)
    for device in devices:
        put[device.name] = nic_value(owner, device, zone, current.get(device.name, ""), queues)
    put |= new_disks(spec, current, storage)
    for n, pci in enumerate(spec.pci_devices):
        put[f"hostpci{n}"] = pci_value(pci)
    if iso:
        put[ISO_SLOT] = f"{iso},media=cdrom"
    wanted = {d.name for d in devices}
    extra = tuple(k for k in sorted(current) if _is_nic(k) and k not in wanted)
    return Changes(put, (*extra, *_stale_numa(spec, current)))


def _stale_numa(spec: ProxmoxMachineSpec, current: Mapping[str, str]) -> tuple[str, ...]:
    """NUMA nodes of the template beyond those of the spec, which would change the sum of memory."""
    known = {f"numa{n}" for n in range(len(spec.numa_nodes))}
    found = (k for k in sorted(current) if k.startswith("numa") and k[4:].isdigit())
    return tuple(k for k in found if k not in known) if known else ()


def description(spec: ProxmoxMachineSpec) -> str:
    """The description of the guest, with the line for the host agent; only we write such lines."""
    text = _CPUS_LINE.sub("", spec.description or "").strip()
    if spec.cpu_pinning is None:
        return text
    emulator = spec.cpu_pinning.emulator_cpus
    line = f"{CPUS_LINE}: {spec.cpu_pinning.cpus}" + (f" emulator={emulator}" if emulator else "")
    return f"{text}\n\n{line}" if text else line


def compute(spec: ProxmoxMachineSpec) -> dict[str, str]:
    """CPU, memory and boot options; these may also change in place."""
    named: dict[str, object] = {
        "sockets": spec.num_sockets,
        "cores": spec.num_cores,
        "cpu": spec.cpu_type,
        "cpulimit": spec.cpu_limit,
        "cpuunits": spec.cpu_units,
        "numa": spec.numa,
        "memory": spec.memory_mib or None,
        "balloon": spec.balloon_mib,
        "machine": spec.machine_type,
        "bios": spec.bios,
        "onboot": spec.on_boot,
    }
    options = {key: _text(value) for key, value in named.items() if value is not None}
    if spec.numa_nodes:
        options["numa"] = "1"
    if spec.huge_pages_mib:
        options["hugepages"] = str(spec.huge_pages_mib)
    return options | {f"numa{n}": numa_value(each) for n, each in enumerate(spec.numa_nodes)}


def numa_value(node: NumaNodeSpec) -> str:
    """A NUMA node of the guest whose memory is bound to one of the host."""
    return f"cpus={node.vcpus},hostnodes={node.host_node},memory={node.memory_mib},policy=bind"


def hardware_hash(spec: ProxmoxMachineSpec) -> str:
    """A short hash of the settings that may change in place."""
    tags = sorted(t.lower() for t in spec.tags)
    around = (spec.firewall_groups, spec.high_availability)
    parts = (sorted(compute(spec).items()), tags, spec.description, spec.disks, around)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:12]


def new_disks(spec: ProxmoxMachineSpec, current: Mapping[str, str], storage: str) -> dict[str, str]:
    """Extra disks that do not exist yet."""
    extra = spec.disks.extra if spec.disks else ()
    return {d.disk: disk_value(d, storage) for d in extra if d.disk not in current}


def _queues(spec: ProxmoxMachineSpec, current: Mapping[str, str]) -> int | None:
    """The queues of virtio devices; None: as the template has them."""
    if spec.network_queues is None:
        return None
    cores = spec.num_cores or int(current.get("cores", "1"))
    return min(cores * (spec.num_sockets or int(current.get("sockets", "1"))), MAX_QUEUES)


def nic_value(
    owner: str,
    device: NetworkDevice,
    zone: ZoneSettings,
    current: str,
    queues: int | None = None,
) -> str:
    """
    A network device; settings that neither spec nor zone give come from the template.

    ``queues`` replaces those of the template, if the device can have any.
    """
    had = _parse(current)
    model: str = device.model or next((m for m in _MODELS if m in had), "virtio")
    if queues is not None and model == "virtio":
        had["queues"] = str(queues)
    parts: dict[str, object] = {
        "bridge": device.bridge or zone.bridge or had.get("bridge") or BRIDGE,
        "firewall": device.firewall if device.firewall is not None else had.get("firewall"),
        "mtu": device.mtu if device.mtu is not None else had.get("mtu"),
        "queues": device.queues if device.queues is not None else had.get("queues"),
        "tag": device.vlan or zone.vlan or had.get("tag"),
    }
    text = [f"{model}={mac_of(owner, device)}"]
    return ",".join(text + [f"{k}={_text(v)}" for k, v in parts.items() if v is not None])


def disk_value(disk: ExtraDisk, storage: str) -> str:
    """A new disk: ``storage:GiB`` and its options."""
    options: dict[str, object] = {
        "format": disk.format,
        "cache": disk.cache,
        "ssd": disk.ssd,
        "iothread": disk.iothread,
        "backup": disk.backup,
        "replicate": disk.replicate,
        "ro": disk.read_only,
        "serial": disk.serial,
        "discard": None if disk.discard is None else ("on" if disk.discard else "ignore"),
    }
    text = [f"{disk.storage or storage}:{disk.size_gb}"]
    return ",".join(text + [f"{k}={_text(v)}" for k, v in options.items() if v is not None])


def pci_value(device: PciDeviceSpec) -> str:
    """A PCI device, by mapping or by host address."""
    first = f"mapping={device.mapping}" if device.mapping else str(device.host)
    options: dict[str, object] = {
        "mdev": device.mdev,
        "pcie": device.pcie,
        "rombar": device.rombar,
        "x-vga": device.primary_gpu,
    }
    return ",".join([first] + [f"{k}={_text(v)}" for k, v in options.items() if v is not None])


def boot_disk(current: Mapping[str, str], named: str = "") -> str:
    """The slot of the boot disk: the named one, else the first disk of the boot order."""
    if named:
        return named
    order = _parse(current.get("boot", "")).get("order", "").split(";")
    slots = [*order, current.get("bootdisk", ""), "scsi0", "virtio0", "sata0", "ide0"]
    return next((s for s in slots if s in current and "media=cdrom" not in current[s]), "scsi0")


def _smbios(current: str, owner: str, sku: str) -> str:
    """The SMBIOS values of the template with the owner's UUID; a SKU needs base64."""
    parts = {k: v for k, v in _parse(current).items() if k != "uuid"}
    if sku:
        plain = parts.pop("base64", "0") != "1"
        parts = {k: _base64(v) if plain else v for k, v in parts.items()}
        parts |= {"sku": _base64(sku), "base64": "1"}
    return ",".join([f"uuid={owner}"] + [f"{k}={v}" for k, v in parts.items() if k])


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _has_agent(current: Mapping[str, str]) -> bool:
    parts = _parse(current.get("agent", "0"))
    return (parts.get("enabled") or parts.get("")) == "1"


def _is_nic(key: str) -> bool:
    return key.startswith("net") and key[3:].isdigit()


def _parse(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name if equals else "": value if equals else name for name, equals, value in pairs}


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
