"""SDN objects as configured, running, or with pending changes."""

from collections.abc import Mapping
from typing import Any

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.section_config import SectionType
from moxwell.lab.proxmox.state import Row, SimSdn

MODIFIED = "detected modified configuration - file changed by other user? Try again."
_SETS = ("nodes", "exitnodes", "dhcp-range", "interfaces")  # their order does not matter


def object_row(call: PveCall, kind: str, ident: str, key: str) -> Row | None:
    """One object: as configured (default), running, or with pending changes."""
    edited: dict[str, Row] = getattr(call.region.sdn, kind)
    running = call.region.sdn.running.get(kind, {})
    if call.get("pending"):
        return pending_row(key, ident, edited.get(ident), running.get(ident))
    if call.get("running"):
        return {key: ident, "digest": None, **running[ident]} if ident in running else None
    if ident not in edited:
        return None
    return {key: ident, "digest": digest_of(edited), **edited[ident]}


def pending_row(key: str, ident: str, new: Row | None, old: Row | None) -> Row | None:
    """The running object with ``pending`` and ``state``."""
    if new is None and old is None:
        return None
    row: Row = {key: ident, "digest": None, "type": (new or old or {}).get("type")}
    if new is None or old is None:
        only = {k: v for k, v in (new or old or {}).items() if k != "type"}
        if new is None:
            return row | only | {"state": "deleted", "pending": {}}
        return row | {"state": "new", "pending": only}
    changed = {k: v for k, v in new.items() if _encoded(k, old.get(k)) != _encoded(k, v)}
    changed |= {k: "deleted" for k in old if k not in new}
    row |= old
    return row | ({"state": "changed", "pending": changed} if changed else {})


def _encoded(key: str, value: Any) -> Any:
    """A value as PVE compares it."""
    if key not in _SETS or value is None:
        return value
    return sorted(value if isinstance(value, list) else formats.split_list(value))


def is_pending(sdn: SimSdn, kind: str) -> bool:
    """Whether objects of a kind have changes that are not applied."""
    edited: Mapping[str, Row] = getattr(sdn, kind)
    return edited != sdn.running.get(kind, {})


def listing(call: PveCall, kind: str, key: str) -> list[Row]:
    """All objects of a kind."""
    sdn = call.region.sdn
    names = dict.fromkeys([*getattr(sdn, kind), *sdn.running.get(kind, {})])
    rows = [object_row(call, kind, name, key) for name in names]
    return [row for row in rows if row is not None]


def check_digest(call: PveCall, digest: str) -> None:
    """Check and remove the digest of a request."""
    if call.params.pop("digest", digest) != digest:
        raise die(MODIFIED)


def new_row(call: PveCall, row: Row, section: SectionType) -> Row:
    """The object after an update: options deleted and set, not stored yet."""
    names = formats.split_list(call.params.pop("delete", ""))
    section.check({k: v for k, v in call.params.items() if k != "type"}, create=False)
    changed = dict(row)
    section.delete(changed, call.params, names)
    return changed | call.params
