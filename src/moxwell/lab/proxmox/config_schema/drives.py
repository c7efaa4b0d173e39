"""
Parses and writes drive strings: ``shared:100/vm-100-disk-0.qcow2,discard=on,size=1G``.

Each bus has its own keys. Sizes are strings ("1G") in drive strings and bytes in :class:`Drive`.
"""

import re
from dataclasses import dataclass, field, replace

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.config_schema.property_strings import PropertyFormat, Values, parse, write
from moxwell.lab.proxmox.errors import FormatError
from moxwell.lab.proxmox.route import Param

COUNTS = {"ide": 4, "scsi": 31, "virtio": 16, "sata": 6, "efidisk": 1, "tpmstate": 1}
DRIVES = tuple(f"{bus}{n}" for bus, count in COUNTS.items() for n in range(count))
UNUSED = tuple(f"unused{n}" for n in range(256))
NEW_DISK = re.compile(r"(?:([a-zA-Z][a-zA-Z0-9\-_.]*[a-zA-Z0-9]):)?(\d+(?:\.\d+)?)")
CLOUDINIT_VOLUME = re.compile(r"[:/](?:vm-\d+-)?cloudinit(?:\.(?:raw|qcow2|vmdk))?$")

_BOOL = Param(type="boolean")
_INT = Param(type="integer")
_NUMBER = Param(type="number")
_LENGTH = Param(type="integer", minimum=1)
_FORMATS = ("raw", "qcow", "qed", "qcow2", "vmdk", "cloop")
_BASE = {
    "file": Param(optional=False, default_key=True, format=formats.volume_or_path),
    "volume": Param(alias="file"),
    "size": Param(format=formats.disk_size),
    "import-from": Param(format=formats.volume_or_absolute),
}
_IMAGE = {"format": Param(enum=_FORMATS)}
_LIMITS = (
    {f"iops{way}{top}": _INT for way in ("", "_rd", "_wr") for top in ("", "_max")}
    | {f"mbps{way}{top}": _NUMBER for way in ("", "_rd", "_wr") for top in ("", "_max")}
    | {f"bps{way}": _INT for way in ("", "_rd", "_wr")}
    | {f"{unit}{way}_max_length": _LENGTH for unit in ("iops", "bps") for way in ("", "_rd", "_wr")}
    | {
        f"{unit}_{way}_length": Param(alias=f"{unit}_{way}_max_length")
        for unit in ("iops", "bps")
        for way in ("rd", "wr")
    }
)
_COMMON = (
    _BASE
    | _IMAGE
    | _LIMITS
    | {
        "media": Param(enum=("cdrom", "disk")),
        "cyls": Param(type="integer", until=8),
        "heads": Param(type="integer", until=8),
        "secs": Param(type="integer", until=8),
        "trans": Param(enum=("none", "lba", "auto"), until=8),
        "snapshot": _BOOL,
        "cache": Param(enum=("none", "writethrough", "writeback", "unsafe", "directsync")),
        "backup": _BOOL,
        "replicate": _BOOL,
        "rerror": Param(enum=("ignore", "report", "stop")),
        "werror": Param(enum=("enospc", "ignore", "report", "stop")),
        "aio": Param(enum=("native", "threads", "io_uring")),
        "discard": Param(enum=("ignore", "on")),
        "detect_zeroes": _BOOL,
        "serial": Param(format=formats.urlencoded, max_length=60),
        "shared": _BOOL,
    }
)
_SSD = {"ssd": _BOOL}
_WWN = {"wwn": Param(pattern=r"0x[0-9a-fA-F]{16}")}
_THREAD = {"iothread": _BOOL, "ro": _BOOL}
_NAME = r"[A-Za-z0-9\-_\s]"
FORMS = {
    "ide": PropertyFormat(
        _COMMON | _SSD | _WWN | {"model": Param(format=formats.urlencoded, max_length=120)}
    ),
    "sata": PropertyFormat(_COMMON | _SSD | _WWN),
    "scsi": PropertyFormat(
        _COMMON
        | _SSD
        | _WWN
        | _THREAD
        | {
            "queues": Param(type="integer", minimum=2),
            "scsiblock": _BOOL,
            "product": Param(pattern=_NAME + "{0,16}"),
            "vendor": Param(pattern=_NAME + "{0,8}"),
        }
    ),
    "virtio": PropertyFormat(_COMMON | _THREAD),
    "efidisk": PropertyFormat(
        _BASE
        | _IMAGE
        | {
            "efitype": Param(enum=("2m", "4m")),
            "pre-enrolled-keys": _BOOL,
            "ms-cert": Param(enum=("2011", "2023", "2023w", "2023k")),
        }
    ),
    "tpmstate": PropertyFormat(
        _BASE
        | {
            "version": Param(enum=("v1.2", "v2.0")),
            "format": Param(enum=("raw", "qcow2", "vmdk"), version=9),
        }
    ),
    "unused": PropertyFormat(
        {
            "file": Param(optional=False, default_key=True, format=formats.volume_id),
            "volume": Param(alias="file"),
        }
    ),
}


def bus(name: str) -> str:
    """The bus of a slot: ``scsi0`` -> ``scsi``."""
    return name.rstrip("0123456789")


def is_drive(name: str) -> bool:
    """Whether this is a drive slot (not an unused volume)."""
    kind = bus(name)
    number = name[len(kind) :]
    return kind in COUNTS and number.isdigit() and int(number) < COUNTS[kind]


@dataclass(frozen=True, slots=True)
class Drive:
    """One parsed drive: slot, volume or medium, and options."""

    slot: str
    file: str
    options: Values = field(default_factory=dict)

    @property
    def is_cloudinit(self) -> bool:
        return CLOUDINIT_VOLUME.search(self.file) is not None

    @property
    def is_cdrom_media(self) -> bool:
        return self.options.get("media") == "cdrom"

    @property
    def is_cdrom(self) -> bool:
        """A CD-ROM drive other than the cloud-init drive."""
        return self.is_cdrom_media and not self.is_cloudinit

    @property
    def storage(self) -> str | None:
        """The storage of a managed volume, or None."""
        if self.file in ("none", "cdrom") or self.file.startswith("/"):
            return None
        return self.file.partition(":")[0] if ":" in self.file else None

    @property
    def size(self) -> int:
        return parse_size(self.options.get("size", "0")) or 0

    @property
    def wanted(self) -> tuple[str | None, float] | None:
        """(storage, GiB) if the file requests a new volume."""
        found = NEW_DISK.fullmatch(self.file)
        return (found[1], float(found[2])) if found else None

    def with_file(self, file: str, size: int | None = None) -> "Drive":
        options = {k: v for k, v in self.options.items() if k not in ("format", "import-from")}
        if size is not None:
            options["size"] = size_text(size)
        return replace(self, file=file, options=options)

    def with_size(self, size: int) -> "Drive":
        return replace(self, options={**self.options, "size": size_text(size)})

    def without(self, *keys: str) -> "Drive":
        kept = {k: v for k, v in self.options.items() if k not in keys}
        return replace(self, options=kept)


_NEEDS = {
    **{f"mbps{way}_max": f"mbps{way}" for way in ("", "_rd", "_wr")},
    **{f"bps{way}_max_length": f"mbps{way}_max" for way in ("", "_rd", "_wr")},
    **{f"iops{way}_max_length": f"iops{way}_max" for way in ("", "_rd", "_wr")},
}
_INCOMPATIBLE = tuple((f"{unit}_{way}", unit) for unit in ("mbps", "iops") for way in ("rd", "wr"))


def parse_drive(slot: str, text: str, *, major: int = 8) -> Drive:
    """Parse a drive string; raises FormatError. ``bps`` limits are converted as in PVE."""
    values = parse(FORMS[bus(slot)], text, slot, major=major)
    for name in ("bps", "bps_rd", "bps_wr"):
        if values.pop(name, None) is not None:
            values.setdefault(f"m{name}", "0.000")
    return Drive(slot, values.pop("file"), values)


def has_compatible_options(drive: Drive) -> bool:
    """Whether the options of a drive are compatible with each other."""
    options = {k: v for k, v in drive.options.items() if v not in ("0", "")}
    if any(key in options and needed not in options for key, needed in _NEEDS.items()):
        return False
    if any(one in options and other in options for one, other in _INCOMPATIBLE):
        return False
    if not drive.is_cdrom_media:
        return True
    odd = {"snapshot", "trans", "format", "heads", "secs", "cyls"}
    return not odd & set(options) and bus(drive.slot) != "virtio"


def find_drive(slot: str, text: object) -> Drive | None:
    """Parse a drive string; None if it is invalid."""
    try:
        return parse_drive(slot, str(text))
    except FormatError:
        return None


def write_drive(drive: Drive) -> str:
    return write(FORMS[bus(drive.slot)], {"file": drive.file, **drive.options})


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(text: str) -> int | None:
    """Convert ``1G``, ``1.5T`` or a number to bytes; None if invalid."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", text)
    return int(float(match[1]) * _UNITS[match[2]]) if match else None


def size_text(size: int) -> str:
    """Format a size with the largest unit that divides it: 1536M, 2G."""
    for unit in ("T", "G", "M", "K"):
        if size and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return str(size)
