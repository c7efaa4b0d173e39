"""
Property strings of Proxmox (``virtio=BC:24:11:00:00:01,bridge=vmbr0``): parse, render, compare.

Pure. Proxmox completes a value (MAC, size, volume name) and sorts its options, so two strings are
not compared for equality: the desired parts must be contained in the current ones.
"""

from collections.abc import Mapping

DISK_KEYS = frozenset(
    f"{bus}{n}"
    for bus, count in (("scsi", 31), ("virtio", 16), ("sata", 6), ("ide", 4))
    for n in range(count)
)
_OFF = {"0", "off", "no", "false"}
_ON = {"1", "on", "yes", "true"}


def parse(text: str) -> dict[str, str]:
    """Return the parts by name; a part without a name (volume, model) has the empty name."""
    parts: dict[str, str] = {}
    for part in str(text).split(","):
        name, equals, value = part.partition("=")
        if equals:
            parts[name.strip()] = value
        elif part:
            parts.setdefault("", part)
    return parts


def render(first: str, parts: Mapping[str, str | int | bool | None]) -> str:
    """Return the property string of a leading value and its options; None is left out."""
    texts = [first] if first else []
    for name, value in parts.items():
        if value is None:
            continue
        texts.append(f"{name}={int(value) if isinstance(value, bool) else value}")
    return ",".join(texts)


def volume(text: str) -> str:
    """Return the volume id of a drive."""
    parts = parse(text)
    return parts.get("") or parts.get("file") or parts.get("volume") or ""


def tags(text: str) -> tuple[str, ...]:
    """Split a tag list at any separator that Proxmox accepts."""
    return tuple(t for t in text.replace(",", ";").replace(" ", ";").split(";") if t)


def is_allocation(text: str) -> bool:
    """Report whether a value requests a new volume (``store:32``) instead of naming one."""
    storage, colon, rest = volume(text).partition(":")
    return bool(storage and colon) and (rest.replace(".", "", 1).isdigit() or rest == "cloudinit")


def _same(one: str, other: str) -> bool:
    if one == other or one.lower() == other.lower():
        return True
    return {one.lower(), other.lower()} <= _ON or {one.lower(), other.lower()} <= _OFF


def _first_satisfied(first: str, current: Mapping[str, str]) -> bool:
    if first in current:  # a network model, which Proxmox turns into model=MAC
        return True
    have = current.get("") or current.get("file") or current.get("volume") or ""
    if is_allocation(first):
        return have.partition(":")[0] == first.partition(":")[0]
    return _same(first, have)


def satisfied(key: str, wanted: str, current: str | None) -> bool:
    """Report whether ``current`` contains everything that ``wanted`` says."""
    if current is None:
        return False
    if key == "tags":
        return set(tags(wanted)) == set(tags(current))
    if key in {"description", "name", "sshkeys", "boot", "args", "cpu", "hotplug"}:
        return wanted.strip() == current.strip()
    if key == "cipassword":
        return bool(current)
    want, have = parse(wanted), parse(current)
    first = want.pop("", None) or want.pop("file", None) or want.pop("volume", None)
    if "import-from" in want:
        return True
    return (first is None or _first_satisfied(first, have)) and all(
        name in have and _same(value, have[name]) for name, value in want.items()
    )
