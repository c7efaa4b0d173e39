"""
The options of VM configurations, one table per major version.

``options(8)["net0"]`` is the ``Param`` of an option; its format knows the option's name, which PVE
includes in error messages. ``stored`` converts a verified parameter to what PVE returns.
"""

from collections.abc import Mapping
from functools import cache

from moxwell.lab.proxmox import parameter_validation
from moxwell.lab.proxmox.config_schema import devices, drives, formats
from moxwell.lab.proxmox.config_schema.property_strings import PropertyFormat, parse
from moxwell.lab.proxmox.errors import FormatError
from moxwell.lab.proxmox.route import Checker, Param
from moxwell.lab.proxmox.state import Value

_BOOL = Param(type="boolean")
LOCKS = (
    "backup",
    "clone",
    "create",
    "migrate",
    "rollback",
    "snapshot",
    "snapshot-delete",
    "suspending",
    "suspended",
)
_KEYBOARDS = (
    "de de-ch da en-gb en-us es fi fr fr-be fr-ca fr-ch hu is it ja lt mk nl no pl pt pt-br"
    " sv sl tr"
)
_OSTYPES = "other wxp w2k w2k3 w2k8 wvista win7 win8 win10 win11 l24 l26 solaris"
_SCSIHW = "lsi lsi53c810 virtio-scsi-pci virtio-scsi-single megasas pvscsi"

_PLAIN: dict[str, Param] = {
    **dict.fromkeys(
        [
            "acpi",
            "autostart",
            "ciupgrade",
            "freeze",
            "keephugepages",
            "kvm",
            "localtime",
            "numa",
            "onboot",
            "protection",
            "reboot",
            "tablet",
            "tdf",
            "template",
        ],
        _BOOL,
    ),
    "allow-ksm": Param(type="boolean", version=9),
    "affinity": Param(format=formats.cpuset),
    "arch": Param(enum=("x86_64", "aarch64")),
    "args": Param(),
    "balloon": Param(type="integer", minimum=0),
    "bios": Param(enum=("seabios", "ovmf")),
    "bootdisk": Param(pattern=r"(ide|sata|scsi|virtio)\d+"),
    "cipassword": Param(),
    "citype": Param(enum=("configdrive2", "nocloud", "opennebula")),
    "ciuser": Param(),
    "cores": Param(type="integer", minimum=1),
    "cpulimit": Param(type="number", minimum=0, maximum=128),
    "cpuunits": Param(type="integer", minimum=1, maximum=262144),
    "description": Param(max_length=8192),
    "hookscript": Param(format=formats.volume_id),
    "hotplug": Param(format=formats.hotplug_features),
    "hugepages": Param(enum=("any", "2", "1024")),
    "keyboard": Param(enum=tuple(_KEYBOARDS.split())),
    "lock": Param(enum=LOCKS),
    "migrate_downtime": Param(type="number", minimum=0),
    "migrate_speed": Param(type="integer", minimum=0),
    "name": Param(format=formats.dns_name),
    "nameserver": Param(format=formats.listed(formats.address)),
    "ostype": Param(enum=tuple(_OSTYPES.split())),
    "scsihw": Param(enum=tuple(_SCSIHW.split())),
    "searchdomain": Param(),
    "shares": Param(type="integer", minimum=0, maximum=50000),
    "smp": Param(type="integer", minimum=1),
    "sockets": Param(type="integer", minimum=1),
    "sshkeys": Param(format=formats.urlencoded),
    "startdate": Param(pattern=r"(now|\d{4}-\d{1,2}-\d{1,2}(T\d{1,2}:\d{1,2}:\d{1,2})?)"),
    "startup": Param(format=formats.startup_order),
    "tags": Param(format=formats.listed(formats.tag)),
    "vcpus": Param(type="integer", minimum=1),
    "vmgenid": Param(pattern=r"(?:[a-fA-F0-9]{8}(?:-[a-fA-F0-9]{4}){3}-[a-fA-F0-9]{12}|[01])"),
    "vmstatestorage": Param(format=formats.storage_id),
}
_FORMS: dict[str, PropertyFormat] = {
    "amd-sev": devices.SEV,
    "audio0": devices.AUDIO,
    "boot": devices.BOOT,
    "cicustom": devices.CICUSTOM,
    "ivshmem": devices.IVSHMEM,
    "machine": devices.MACHINE,
    "memory": devices.MEMORY,
    "rng0": devices.RNG,
    "spice_enhancements": devices.SPICE,
    "vga": devices.VGA,
    "watchdog": devices.WATCHDOG,
}
_FAMILIES: dict[str, tuple[PropertyFormat, int]] = {
    "hostpci": (devices.HOSTPCI, 16),
    "ipconfig": (devices.IPCONFIG, 32),
    "net": (devices.NET, 32),
    "numa": (devices.NUMA, 8),
    "usb": (devices.USB, 14),
    "virtiofs": (devices.VIRTIOFS, 10),
    "unused": (drives.FORMS["unused"], 256),
}
_PATTERNS = {
    "serial": (r"(/dev/.+|socket)", 4),
    "parallel": (r"/dev/parport\d+|/dev/usb/lp\d+", 3),
}
CLOUDINIT = frozenset(
    [
        "cicustom",
        "cipassword",
        "citype",
        "ciuser",
        "ciupgrade",
        "nameserver",
        "searchdomain",
        "sshkeys",
    ]
)


def bound(schema: PropertyFormat, name: str, major: int) -> Checker:
    """A format function that knows the option's name and the major version."""

    def check(text: str) -> object:
        return parse(schema, text, name, major=major)

    return check


@cache
def options(major: int) -> Mapping[str, Param]:
    """All options of a VM configuration."""
    found = {name: param for name, param in _PLAIN.items() if param.version <= major}
    singles = _FORMS | {
        "agent": devices.AGENT if major < 9 else devices.AGENT_9,
        "cpu": devices.CPU[min(max(major, 8), 9)],
    }
    if major >= 9:
        singles |= {"intel-tdx": devices.TDX}
    for name, schema in singles.items():
        limit = {"smbios1": 512}.get(name)
        found[name] = Param(format=bound(schema, name, major), max_length=limit)
    found["smbios1"] = Param(format=bound(devices.SMBIOS, "smbios1", major), max_length=512)
    for family, (schema, count) in _FAMILIES.items():
        for number in range(count):
            name = f"{family}{number}"
            found[name] = Param(format=bound(schema, name, major))
    for family, (pattern, count) in _PATTERNS.items():
        found |= {f"{family}{number}": Param(pattern=pattern) for number in range(count)}
    for name in drives.DRIVES:
        found[name] = Param(format=bound(drives.FORMS[drives.bus(name)], name, major))
    return found


def stored(name: str, value: object, major: int) -> Value | None:
    """
    The value that PVE returns after writing and reading an option; None if it is lost.

    PVE writes an empty string as a blank and reads a blank; if the option's format rejects a blank,
    the line is skipped.
    """
    param = options(major).get(name, Param())
    if isinstance(value, float) and param.type == "number":
        return f"{value:g}"
    if isinstance(value, int | float) and param.type in ("integer", "boolean"):
        return int(value)
    text = str(value)
    if param.type in ("integer", "boolean"):
        return int(text)
    if text or name == "description":
        return text
    try:
        parameter_validation.coerce(param, " ")
    except FormatError:
        return None
    return " "


def read_hotplug(conf: Mapping[str, Value]) -> frozenset[str]:
    """The hotplug features of a configuration."""
    try:
        return formats.hotplug_features(str(conf.get("hotplug", "1")))
    except FormatError:
        return frozenset()


def clamp_cpuunits(settings: dict[str, Value]) -> None:
    """Limit the CPU weight to what cgroups (version 2) take."""
    if settings.get("cpuunits") is not None:
        settings["cpuunits"] = min(int(settings["cpuunits"]), 10000)


def memory_mib(conf: Mapping[str, Value]) -> int:
    """The memory of a configuration in MiB."""
    text = str(conf.get("memory", "512"))
    if text.isdigit():
        return int(text)
    return int(devices.read(devices.MEMORY, text).get("current", "512"))
