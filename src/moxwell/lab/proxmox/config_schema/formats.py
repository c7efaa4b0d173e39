"""
The named formats of PVE::JSONSchema: each checks a string and raises ``FormatError``.

The messages end in a newline, as those of Perl's ``die``; PVE prefixes "invalid format - ".
"""

import ipaddress
import re
import zoneinfo
from collections.abc import Callable
from functools import cache
from pathlib import Path

from moxwell.lab.proxmox.errors import FormatError

STORAGE_ID = r"[a-zA-Z][a-zA-Z0-9\-_.]*[a-zA-Z0-9]"
_LABEL = r"[a-zA-Z0-9]([a-zA-Z0-9\-]*[a-zA-Z0-9])?"
REALM = r"[A-Za-z][A-Za-z0-9._-]+"
_LIST = re.compile(r"[,;\s\0]+")


def _by(pattern: str, text: Callable[[str], str]) -> Callable[[str], None]:
    compiled = re.compile(pattern)

    def check(value: str) -> None:
        if not compiled.fullmatch(value):
            raise FormatError(text(value) + "\n")

    return check


def by_pattern(pattern: str, text: str) -> Callable[[str], None]:
    """A format that is a pattern; ``{}`` in the message stands for the value."""
    return _by(pattern, lambda value: text.replace("{}", value))


def words(text: str) -> tuple[str, ...]:
    """Split a string of words."""
    return tuple(text.split())


def split_list(text: str) -> list[str]:
    """Split a PVE list at commas, semicolons, spaces or NULs."""
    return [item for item in _LIST.split(text.strip()) if item]


def listed(check: Callable[[str], object]) -> Callable[[str], None]:
    """The ``-list`` variant of a format."""

    def check_all(value: str) -> None:
        for item in split_list(value):
            check(item)

    return check_all


dns_name = _by(rf"({_LABEL}\.)*{_LABEL}", lambda _: "value does not look like a valid DNS name")
vmid = _by(r"[1-9][0-9]{2,8}", lambda _: "value does not look like a valid VM ID")
node = _by(_LABEL, lambda _: "value does not look like a valid node name")
storage_id = _by(STORAGE_ID, lambda v: f"storage ID '{v}' contains illegal characters")
config_id = _by(r"[a-zA-Z][a-zA-Z0-9_-]+", lambda v: f"invalid configuration ID '{v}'")
_pool_name = _by(
    r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+){0,2}",
    lambda v: f"pool name '{v}' contains invalid characters",
)
email = _by(
    r"[\w+\-~]+(\.[\w+\-~]+)*@[a-zA-Z0-9\-]+(\.[a-zA-Z0-9\-]+)*",
    lambda _: "value does not look like a valid email address",
)
realm = _by(REALM, lambda _: "value does not look like a valid realm")
token_id = _by(REALM, lambda v: f"value '{v}' does not look like a valid token ID")
role_id = _by(r"[A-Za-z0-9.\-_]+", lambda v: f"role name '{v}' contains invalid characters")
group_id = _by(r"[A-Za-z0-9.\-_]+", lambda v: f"group name '{v}' contains invalid characters")
volume_id = _by(rf"{STORAGE_ID}:.+", lambda v: f"unable to parse volume ID '{v}'")
mac = _by(
    r"[a-fA-F0-9][02468aceACE](:[a-fA-F0-9]{2}){5}",
    lambda _: "value does not look like a valid unicast MAC address",
)
bridge_id = _by(r"[-_.\w\d]+", lambda v: f"invalid bridge ID '{v}'")
tag = _by(r"[a-zA-Z0-9_][a-zA-Z0-9_\-+.]*", lambda _: "invalid characters in tag")
urlencoded = _by(r"[-%a-zA-Z0-9_.!~*'()]*", lambda v: f"invalid urlencoded string: {v}")
disk_size = _by(r"\d+(\.\d+)?[KMGT]?", lambda v: f"value does not look like a valid disk size: {v}")
boot_device = _by(
    r"(ide[0-3]|scsi([0-9]|[12][0-9]|30)|virtio([0-9]|1[0-5])|sata[0-5]"
    r"|net([0-9]|[12][0-9]|3[01])|usb([0-9]|1[0-3])|hostpci([0-9]|1[0-5]))",
    lambda v: f"invalid boot device '{v}'",
)
volume_or_path = _by(
    rf"none|cdrom|/.*|{STORAGE_ID}:.+", lambda v: f"unable to parse volume ID '{v}'"
)
volume_or_absolute = _by(rf"/.*|{STORAGE_ID}:.+", lambda v: f"unable to parse volume ID '{v}'")
container_mount = _by(
    r"(?!\.\.?(/|$))(?!.*/\.\.?(/|$)).*", lambda v: f"{v} contains illegal path segments"
)
device_path = _by(r"/dev/.+", lambda v: f"{v} is not a valid device path")


def pool_id(value: str) -> None:
    if len(value.split("/")) > 3:
        raise FormatError(f"pool name '{value}' nested too deeply (max levels = 3)\n")
    _pool_name(value)


def user_id(value: str) -> None:
    if len(value) < 3:
        raise FormatError(f"user name '{value}' is too short\n")
    if len(value) > 64:
        raise FormatError(f"user name '{value}' is too long ({len(value)} > 64)\n")
    if not re.fullmatch(rf"[^\s:/]+@{REALM}", value):
        raise FormatError(f"value '{value}' does not look like a valid user name\n")


def absolute_path(value: str) -> None:
    if not value.startswith("/"):
        raise FormatError("value does not look like a valid absolute path\n")


def ip(value: str) -> None:
    if not is_address(value):
        raise FormatError("value does not look like a valid IP address\n")


def ipv4(value: str) -> None:
    try:
        ipaddress.IPv4Address(value)
    except ValueError:
        raise FormatError("value does not look like a valid IPv4 address\n") from None


def ipv6(value: str) -> None:
    try:
        ipaddress.IPv6Address(value)
    except ValueError:
        raise FormatError("value does not look like a valid IPv6 address\n") from None


def is_cidr(value: str, version: int) -> bool:
    address, slash, bits = value.partition("/")
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    top = 32 if version == 4 else 128
    return found.version == version and bool(slash) and bits.isdigit() and 7 < int(bits) <= top


def ipv4_config(value: str) -> None:
    if value not in ("dhcp", "manual") and not is_cidr(value, 4):
        raise FormatError("value does not look like a valid ipv4 network configuration\n")


def ipv6_config(value: str) -> None:
    if value not in ("auto", "dhcp", "manual") and not is_cidr(value, 6):
        raise FormatError("value does not look like a valid ipv6 network configuration\n")


def cidr(value: str) -> None:
    if not is_cidr(value, 4) and not is_cidr(value, 6):
        raise FormatError("value does not look like a valid CIDR network\n")


def is_address(value: str) -> bool:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True


def address(value: str) -> None:
    """An IP address or a DNS name."""
    if not is_address(value) and not re.fullmatch(rf"({_LABEL}\.)*{_LABEL}", value):
        raise FormatError(f"value does not look like a valid address: {value}\n")


def container_address(value: str) -> None:
    """An IP address; a link-local one with its interface."""
    if not is_address(value.partition("%")[0]):
        raise FormatError(f"value does not look like a valid address: {value}\n")


def cpuset(value: str) -> None:
    try:
        cpus(value)
    except ValueError:
        raise FormatError("unable to parse cpuset option\n") from None


def cpus(value: str) -> set[int]:
    """The numbers of ``0-1,4``; raises ValueError if invalid."""
    found: set[int] = set()
    for part in value.split(","):
        if not part and not value:
            continue
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
            raise ValueError(part)
        found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found


def startup_order(value: str) -> None:
    for part in value.split(","):
        if part.strip() and not re.fullmatch(r"\s*((order=)?\d+|up=\d+|down=\d+)\s*", part):
            raise FormatError("unable to parse startup options\n")


HOTPLUG = ("network", "disk", "cpu", "memory", "usb", "cloudinit")


def hotplug_features(value: str) -> frozenset[str]:
    """The hotplug features; ``1`` means the default set."""
    if value == "0":
        return frozenset()
    if value == "1":
        value = "network,disk,usb"
    for feature in split_list(value):
        if feature not in HOTPLUG:
            raise FormatError(f"invalid hotplug feature '{feature}'\n")
    return frozenset(split_list(value))


CONTENT_TYPES = frozenset(
    {"images", "rootdir", "vztmpl", "iso", "backup", "snippets", "import", "none"}
)


def storage_content(value: str) -> None:
    if value not in CONTENT_TYPES:
        raise FormatError(f"invalid content type '{value}'\n")


def timezone(value: str) -> None:
    """``host``, UTC or a zone of zone.tab."""
    if value in ("host", "UTC") or value in _zones():
        return
    if _zones() or not re.fullmatch(r"[A-Za-z0-9_+\-]+(/[A-Za-z0-9_+\-]+){0,2}", value):
        raise FormatError(f"invalid time zone '{value}'\n")


@cache
def _zones() -> frozenset[str]:
    """The names in zone.tab; empty if this host has no time zone database."""
    for folder in zoneinfo.TZPATH:
        table = Path(folder) / "zone.tab"
        if table.is_file():
            lines = table.read_text(encoding="utf-8").splitlines()
            return frozenset(line.split("\t")[2] for line in lines if line and line[0] != "#")
    return frozenset()
