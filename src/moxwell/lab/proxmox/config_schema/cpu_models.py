"""The CPU models that Proxmox VE knows, per major version, and their vendors."""

from functools import cache

_PLAIN = """486 pentium pentium2 pentium3 coreduo core2duo Conroe Penryn KnightsMill athlon phenom
Cooperlake Cooperlake-v2 GraniteRapids host kvm32 kvm64 qemu32 qemu64 max Opteron_G1 Opteron_G2
Opteron_G3 Opteron_G4 Opteron_G5"""
_ADDED_9 = """a64fx ClearwaterForest cortex-a35 cortex-a53 cortex-a55 cortex-a57 cortex-a710
cortex-a72 cortex-a76 EPYC-Genoa-v2 EPYC-Milan-v3 EPYC-Rome-v5 EPYC-Turin EPYC-v5 GraniteRapids-v2
GraniteRapids-v3 Icelake-Server-v7 neoverse-n1 neoverse-n2 neoverse-v1 SapphireRapids-v3
SapphireRapids-v4 SierraForest SierraForest-v2 SierraForest-v3"""
_VARIANTS = {
    "Nehalem": "-IBRS",
    "Westmere": "-IBRS",
    "SandyBridge": "-IBRS",
    "IvyBridge": "-IBRS",
    "Haswell": "-IBRS -noTSX -noTSX-IBRS",
    "Broadwell": "-IBRS -noTSX -noTSX-IBRS",
    "Skylake-Client": "-IBRS -noTSX-IBRS -v4",
    "Skylake-Server": "-IBRS -noTSX-IBRS -v4 -v5",
    "Cascadelake-Server": "-v2 -noTSX -v4 -v5",
    "Icelake-Client": "-noTSX",
    "Icelake-Server": "-noTSX -v3 -v4 -v5 -v6",
    "SapphireRapids": "-v2",
    "EPYC": "-IBPB -v3 -v4 -Rome -Rome-v2 -Rome-v3 -Rome-v4 -Milan -Milan-v2 -Genoa",
}
ABSTRACT = ("x86-64-v2", "x86-64-v2-AES", "x86-64-v3", "x86-64-v4")
_DEFAULT = frozenset(["host", "max", "kvm32", "kvm64", "qemu32", "qemu64", *ABSTRACT])
_ARM = ("a64fx", "cortex", "neoverse")


@cache
def qemu_models(major: int) -> tuple[str, ...]:
    """The models of QEMU, sorted as PVE lists them."""
    names = {*_PLAIN.split()}
    names |= {base + tail for base, tails in _VARIANTS.items() for tail in ["", *tails.split()]}
    if major >= 9:
        names |= {*_ADDED_9.split()}
    return tuple(sorted(names, key=str.lower))


@cache
def cpu_types(major: int) -> frozenset[str]:
    """All values of ``cputype`` except custom models."""
    return frozenset(qemu_models(major)) | frozenset(ABSTRACT)


def vendor(model: str) -> str:
    """The vendor of a model."""
    if model in _DEFAULT:
        return "default"
    if model.startswith(("athlon", "phenom", "Opteron", "EPYC")):
        return "AuthenticAMD"
    return "ARM" if model.startswith(_ARM) else "GenuineIntel"
