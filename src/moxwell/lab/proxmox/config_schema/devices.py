"""
Property string formats of VM options other than drives: net, cpu, numa, agent, hostpci, and others.
"""

import re

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.config_schema.cpu_models import cpu_types, qemu_models
from moxwell.lab.proxmox.config_schema.property_strings import PropertyFormat, Values, parse, write
from moxwell.lab.proxmox.errors import FormatError
from moxwell.lab.proxmox.route import Param

_BOOL = Param(type="boolean")
_RANGES = r"\d+(?:-\d+)?(?:;\d+(?:-\d+)?)*"
_BASE64 = r"[A-Za-z0-9+\/]+={0,2}"
_UUID = r"[a-fA-F0-9]{8}(?:-[a-fA-F0-9]{4}){3}-[a-fA-F0-9]{12}"
_PCI = r"(?:[a-fA-F0-9]{4,}:)?[a-fA-F0-9]{2}:[a-fA-F0-9]{2}(?:\.[a-fA-F0-9])?"

MODELS = (
    "e1000",
    "e1000-82540em",
    "e1000-82544gc",
    "e1000-82545em",
    "e1000e",
    "i82551",
    "i82557b",
    "i82559er",
    "ne2k_isa",
    "ne2k_pci",
    "pcnet",
    "rtl8139",
    "virtio",
    "vmxnet3",
)
NET = PropertyFormat(
    {
        "model": Param(optional=False, default_key=True, enum=MODELS),
        "macaddr": Param(format=formats.mac),
        "bridge": Param(format=formats.bridge_id),
        "queues": Param(type="integer", minimum=0, maximum=64),
        "rate": Param(type="number", minimum=0),
        "tag": Param(type="integer", minimum=1, maximum=4094),
        "trunks": Param(pattern=_RANGES),
        "firewall": _BOOL,
        "link_down": _BOOL,
        "mtu": Param(type="integer", minimum=1, maximum=65520),
    },
    key_alias=("model", "macaddr"),
    models=frozenset(MODELS),
)
NUMA = PropertyFormat(
    {
        "cpus": Param(optional=False, pattern=_RANGES),
        "memory": Param(type="number"),
        "hostnodes": Param(pattern=_RANGES),
        "policy": Param(enum=("preferred", "bind", "interleave")),
    }
)
AGENT = PropertyFormat(
    {
        "enabled": Param(type="boolean", optional=False, default_key=True),
        "type": Param(enum=("virtio", "isa")),
        "fstrim_cloned_disks": _BOOL,
        "freeze-fs": Param(type="boolean", version=9),
        "freeze-fs-on-backup": Param(type="boolean", until=8),
    }
)
AGENT_9 = PropertyFormat(
    {
        **{k: v for k, v in AGENT.params.items() if k != "freeze-fs-on-backup"},
        "freeze-fs-on-backup": Param(alias="freeze-fs"),
        "guest-fsfreeze": Param(alias="freeze-fs"),
    }
)
BOOT = PropertyFormat(
    {
        "legacy": Param(default_key=True, pattern="[acdn]{1,4}"),
        "order": Param(format=formats.listed(formats.boot_device)),
    }
)
SMBIOS = PropertyFormat(
    {
        "uuid": Param(pattern=_UUID),
        **{
            name: Param(pattern=_BASE64)
            for name in ("version", "serial", "manufacturer", "product", "sku", "family")
        },
        "base64": _BOOL,
    }
)
IPCONFIG = PropertyFormat(
    {
        "ip": Param(format=formats.ipv4_config),
        "gw": Param(format=formats.ipv4, requires="ip"),
        "ip6": Param(format=formats.ipv6_config),
        "gw6": Param(format=formats.ipv6, requires="ip6"),
    }
)
CICUSTOM = PropertyFormat(
    {name: Param(format=formats.volume_id) for name in ("user", "network", "meta", "vendor")}
)
MEMORY = PropertyFormat(
    {"current": Param(type="integer", optional=False, default_key=True, minimum=16)}
)
HOSTPCI = PropertyFormat(
    {
        "host": Param(default_key=True, pattern=rf"{_PCI}(;{_PCI})*"),
        "mapping": Param(format=formats.config_id),
        "rombar": _BOOL,
        "romfile": Param(pattern="[^,;]+"),
        "pcie": _BOOL,
        "x-vga": _BOOL,
        "legacy-igd": _BOOL,
        "mdev": Param(pattern=r"[^/\.:]+"),
        "vendor-id": Param(pattern="0x[0-9a-fA-F]{4}"),
        "device-id": Param(pattern="0x[0-9a-fA-F]{4}"),
        "sub-vendor-id": Param(pattern="0x[0-9a-fA-F]{4}"),
        "sub-device-id": Param(pattern="0x[0-9a-fA-F]{4}"),
        "driver": Param(enum=("vfio", "keep"), version=9),
    }
)
USB = PropertyFormat(
    {
        "host": Param(
            default_key=True,
            pattern=r"(?:(?:0x)?[0-9A-Fa-f]{4}:(?:0x)?[0-9A-Fa-f]{4})|(?:\d+\-\d+(?:\.\d+)*)"
            r"|[Ss][Pp][Ii][Cc][Ee]",
        ),
        "mapping": Param(format=formats.config_id),
        "usb3": _BOOL,
    }
)
VIRTIOFS = PropertyFormat(
    {
        "dirid": Param(optional=False, default_key=True, format=formats.config_id),
        "cache": Param(enum=("auto", "always", "metadata", "never")),
        "direct-io": _BOOL,
        "expose-acl": _BOOL,
        "expose-xattr": _BOOL,
    }
)
VGA = PropertyFormat(
    {
        "type": Param(
            default_key=True,
            enum=(
                "cirrus",
                "qxl",
                "qxl2",
                "qxl3",
                "qxl4",
                "none",
                "serial0",
                "serial1",
                "serial2",
                "serial3",
                "std",
                "virtio",
                "virtio-gl",
                "vmware",
            ),
        ),
        "memory": Param(type="integer", minimum=4, maximum=512),
        "clipboard": Param(enum=("vnc",)),
    }
)
WATCHDOG = PropertyFormat(
    {
        "model": Param(default_key=True, enum=("i6300esb", "ib700")),
        "action": Param(enum=("reset", "shutdown", "poweroff", "pause", "debug", "none")),
    }
)
RNG = PropertyFormat(
    {
        "source": Param(default_key=True, enum=("/dev/urandom", "/dev/random", "/dev/hwrng")),
        "max_bytes": Param(type="integer"),
        "period": Param(type="integer"),
    }
)
AUDIO = PropertyFormat(
    {
        "device": Param(optional=False, enum=("ich9-intel-hda", "intel-hda", "AC97")),
        "driver": Param(enum=("spice", "none")),
    }
)
IVSHMEM = PropertyFormat(
    {
        "size": Param(type="integer", optional=False, minimum=1),
        "name": Param(pattern=r"[a-zA-Z0-9\-]+"),
    }
)
SPICE = PropertyFormat(
    {"foldersharing": _BOOL, "videostreaming": Param(enum=("off", "all", "filter"))}
)
MACHINE = PropertyFormat(
    {
        "type": Param(
            default_key=True,
            max_length=40,
            pattern=r"(pc|pc(-i440fx)?-\d+(\.\d+)+(\+pve\d+)?(\.pxe)?|q35"
            r"|pc-q35-\d+(\.\d+)+(\+pve\d+)?(\.pxe)?|virt(?:-\d+(\.\d+)+)?(\+pve\d+)?)",
        ),
        "viommu": Param(enum=("intel", "virtio")),
        "enable-s3": _BOOL,
        "enable-s4": _BOOL,
        "aw-bits": Param(type="number", minimum=32, maximum=64, version=9),
    }
)
SEV = PropertyFormat(
    {
        "type": Param(default_key=True, optional=False, enum=("std", "es", "snp")),
        "no-debug": _BOOL,
        "no-key-sharing": _BOOL,
        "allow-smt": _BOOL,
        "kernel-hashes": _BOOL,
    }
)
TDX = PropertyFormat(
    {
        "type": Param(default_key=True, optional=False, enum=("tdx",)),
        "attestation": _BOOL,
        "vsock-cid": Param(type="integer", minimum=2),
        "vsock-port": Param(type="integer", minimum=0),
    }
)

_FLAGS_8 = (
    "pcid spec-ctrl ibpb ssbd virt-ssbd amd-ssbd amd-no-ssb pdpe1gb md-clear hv-tlbflush"
    " hv-evmcs aes"
)
CPU_FLAGS = {
    8: tuple(_FLAGS_8.split()),
    9: tuple(sorted(["nested-virt", *_FLAGS_8.split()])),
}


def _phys_bits(value: str) -> None:
    if value != "host" and not (re.fullmatch(r"\d{1,2}", value) and 8 <= int(value) <= 64):
        raise FormatError("value must be an integer between 8 and 64 or 'host'\n")


def _cpu_rules(major: int) -> PropertyFormat:
    def check(values: Values) -> None:
        kind = values.get("cputype", "kvm64" if major < 9 else "x86-64-v2-AES")
        if kind.startswith("custom-"):
            raise FormatError(f"Custom cputype '{kind[7:]}' not found\n")
        if kind not in cpu_types(major):
            raise FormatError(
                f"Built-in cputype '{kind}' is not defined (missing 'custom-' prefix?)\n"
            )
        allowed = CPU_FLAGS[major]
        for flag in values.get("flags", "").split(";"):
            if flag and flag[1:] not in allowed:
                listed = ", ".join(allowed)
                raise FormatError(f"VM-specific CPU flags must be a subset of: {listed}\n")
        if "reported-model" in values:
            raise FormatError("Property 'reported-model' not allowed in VM-specific CPU config.\n")

    flag = r"[+-][a-zA-Z0-9\-_\.]+"
    return PropertyFormat(
        {
            "cputype": Param(default_key=True),
            "reported-model": Param(enum=qemu_models(major)),
            "hidden": _BOOL,
            "hv-vendor-id": Param(pattern="[a-zA-Z0-9]{1,12}"),
            "flags": Param(pattern=rf"{flag}(;{flag})*"),
            "phys-bits": Param(format=_phys_bits),
            "guest-phys-bits": Param(type="integer", minimum=32, maximum=64, version=9),
        },
        after=check,
    )


CPU = {8: _cpu_rules(8), 9: _cpu_rules(9)}


def read(schema: PropertyFormat, text: object, path: str = "") -> Values:
    """Parse a stored property string; empty if it is invalid."""
    try:
        return parse(schema, str(text), path, major=9)
    except FormatError:
        return {}


def write_net(values: Values) -> str:
    """Write a network device as PVE stores it: ``model=MAC`` first, then sorted keys."""
    return write(NET, values)
