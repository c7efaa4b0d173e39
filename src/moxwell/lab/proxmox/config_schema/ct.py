"""The options of container configurations, one table per major version."""

from collections.abc import Mapping
from functools import cache

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.config_schema.formats import words
from moxwell.lab.proxmox.config_schema.property_strings import PropertyFormat, Values, parse, write
from moxwell.lab.proxmox.config_schema.vm import bound
from moxwell.lab.proxmox.errors import FormatError
from moxwell.lab.proxmox.route import Param
from moxwell.lab.proxmox.state import Value

_BOOL = Param(type="boolean")
_PRINTABLE = r"[^\x00-\x08\x10-\x1F\x7F]"
_MOUNT = r"(discard|lazytime|noatime|nodev|noexec|nosuid)"
MOUNT_POINTS = tuple(f"mp{n}" for n in range(256))
DISKS = ("rootfs", *MOUNT_POINTS)
_ROOT = {
    "volume": Param(optional=False, default_key=True, format=formats.container_mount),
    "size": Param(format=formats.disk_size),
    "acl": _BOOL,
    "mountoptions": Param(pattern=rf"{_MOUNT}(;{_MOUNT})*"),
    "ro": _BOOL,
    "quota": _BOOL,
    "replicate": _BOOL,
    "shared": _BOOL,
}
ROOTFS = PropertyFormat(_ROOT)
MP = PropertyFormat(
    {
        **_ROOT,
        "mp": Param(optional=False, format=formats.container_mount),
        "backup": _BOOL,
        "keepattrs": Param(type="boolean", version=9),
    }
)
NET = PropertyFormat(
    {
        "type": Param(enum=("veth",)),
        "name": Param(optional=False, pattern=r"[-_.\w\d]+"),
        "bridge": Param(pattern=r"[-_.\w\d]+"),
        "hwaddr": Param(format=formats.mac),
        "mtu": Param(type="integer", minimum=64, maximum=65535),
        "ip": Param(format=formats.ipv4_config),
        "gw": Param(format=formats.ipv4),
        "ip6": Param(format=formats.ipv6_config),
        "gw6": Param(format=formats.ipv6),
        "firewall": _BOOL,
        "tag": Param(type="integer", minimum=1, maximum=4094),
        "trunks": Param(pattern=r"\d+(?:;\d+)*"),
        "rate": Param(type="number"),
        "link_down": _BOOL,
        "host-managed": Param(type="boolean", version=9),
    }
)
FEATURES = PropertyFormat(
    {
        "mount": Param(pattern="[a-zA-Z0-9_; ]+"),
        **dict.fromkeys(("nesting", "keyctl", "fuse", "mknod", "force_rw_sys"), _BOOL),
    }
)
DEVICE = PropertyFormat(
    {
        "path": Param(default_key=True, format=formats.device_path),
        "mode": Param(pattern="0[0-7]{3}"),
        "uid": Param(type="integer", minimum=0),
        "gid": Param(type="integer", minimum=0),
        "deny-write": _BOOL,
    }
)
_UNUSED = PropertyFormat(
    {"volume": Param(optional=False, default_key=True, format=formats.volume_id)}
)
_LOCKS = "backup create destroyed disk fstrim migrate mounted rollback snapshot snapshot-delete"
_OSTYPES = words(
    "debian devuan ubuntu centos fedora opensuse archlinux alpine gentoo nixos unmanaged"
)
_PLAIN: dict[str, Param] = {
    **dict.fromkeys(words("console debug onboot protection template unprivileged"), _BOOL),
    "arch": Param(enum=("amd64", "i386", "arm64", "armhf", "riscv32", "riscv64")),
    "cmode": Param(enum=("shell", "console", "tty")),
    "cores": Param(type="integer", minimum=1, maximum=8192),
    "cpulimit": Param(type="number", minimum=0, maximum=8192),
    "cpuunits": Param(type="integer", minimum=0, maximum=500000),
    "description": Param(max_length=8192),
    "hookscript": Param(format=formats.volume_id),
    "hostname": Param(format=formats.dns_name, max_length=255),
    "lock": Param(enum=tuple(_LOCKS.split())),
    "memory": Param(type="integer", minimum=16),
    "nameserver": Param(format=formats.listed(formats.container_address)),
    "ostype": Param(enum=tuple(_OSTYPES)),
    "searchdomain": Param(format=formats.listed(formats.dns_name)),
    "startup": Param(format=formats.startup_order),
    "swap": Param(type="integer", minimum=0),
    "tags": Param(format=formats.listed(formats.tag)),
    "timezone": Param(format=formats.timezone),
    "tty": Param(type="integer", minimum=0, maximum=6),
    "entrypoint": Param(pattern=f"{_PRINTABLE}+", version=9),
    "env": Param(pattern=rf"\w+={_PRINTABLE}*(?:\0\w+={_PRINTABLE}*)*", version=9),
}


@cache
def options(major: int) -> Mapping[str, Param]:
    """All options of a container configuration."""
    found = {name: param for name, param in _PLAIN.items() if param.version <= major}
    found["rootfs"] = Param(format=bound(ROOTFS, "rootfs", major))
    found["features"] = Param(format=bound(FEATURES, "features", major))
    for family, schema, count in (
        ("mp", MP, 256),
        ("net", NET, 32),
        ("dev", DEVICE, 256),
        ("unused", _UNUSED, 256),
    ):
        for number in range(count):
            name = f"{family}{number}"
            found[name] = Param(format=bound(schema, name, major))
    return found


def read(schema: PropertyFormat, text: object) -> Values:
    try:
        return parse(schema, str(text), "", major=9)
    except FormatError:
        return {}


def mount_form(key: str) -> PropertyFormat:
    return ROOTFS if key == "rootfs" else MP


def write_mount(key: str, values: Values) -> str:
    return write(mount_form(key), values)


def stored(name: str, value: object) -> Value:
    """The value that PVE returns after writing and reading an option."""
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, int) else str(value)
