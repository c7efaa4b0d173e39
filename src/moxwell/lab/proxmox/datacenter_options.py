"""
``/cluster/options`` (datacenter.cfg), as ``PVE::DataCenterConfig`` reads and writes it.

The texts are stored as they were sent and parsed when they are read. The description is stored as
comment lines, so that each of its lines comes back with a newline.
"""

from typing import Any

from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.config_schema.property_strings import split
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.schema.catalog import catalog
from moxwell.lab.proxmox.state import Row, SimRegion

FIRST, LAST = 100, 1000000  # the default range of VMIDs
_OBJECTS: dict[str, str | None] = {  # property strings, with their default keys
    "crs": None,
    "ha": None,
    "migration": "type",
    "next-id": None,
    "notify": None,
    "replication": "type",
    "tag-style": None,
    "u2f": None,
    "user-tag-access": None,
    "webauthn": None,
}
_FLAGS = frozenset({"allow-subdomains", "case-sensitive", "ha-rebalance-on-start"})


def read(region: SimRegion) -> Row:
    """The options of the datacenter, parsed."""
    options = {name: _parsed(region, name, value) for name, value in region.options.items()}
    return {"mac_prefix": "BC:24:11", **options, "description": _comment(region)}


def option(region: SimRegion, name: str) -> Any:
    """One parsed option; None if it is not set."""
    value = region.options.get(name)
    return None if value is None else _parsed(region, name, value)


def _parsed(region: SimRegion, name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if name == "registered-tags":
        return formats.split_list(value)
    if name not in _OBJECTS:
        return value
    found: Row = dict(_split(region, name, value))
    found |= {key: int(found[key] == "1") for key in _FLAGS & found.keys()}
    if "user-allow-list" in found:
        found["user-allow-list"] = formats.split_list(found["user-allow-list"])
    return found


def _split(region: SimRegion, name: str, text: str) -> Any:
    """The keys of a property string; booleans are 1 or 0."""
    facts = catalog(region.major).find("PUT", "/cluster/options")
    param = facts.params.get(name) if facts else None
    if param is None or param.property_string is None:
        return split(text, _OBJECTS[name])
    return param.property_string(text, name, region.major)


def _comment(region: SimRegion) -> str:
    lines = str(region.options.get("description") or "").splitlines()
    return "".join(f"{line}\n" for line in lines)


def vmid_range(region: SimRegion) -> tuple[int, int]:
    """The VMIDs that may be proposed."""
    bounds = option(region, "next-id") or {}
    return int(bounds.get("lower", FIRST)), int(bounds.get("upper", LAST))


def write(region: SimRegion, values: Row, deleted: list[str]) -> None:
    """Set and delete options; an error changes nothing."""
    before, changed = region.options, {**region.options, **values}
    region.options = {name: value for name, value in changed.items() if name not in deleted}
    lower, upper = vmid_range(region)
    if lower > upper:
        region.options = before
        raise die(f"lower ({lower}) <= upper ({upper}) boundary rule broken")
    _replace_old(region.options)


def _replace_old(options: Row) -> None:
    """Options of earlier releases are stored as those that replaced them."""
    if "migration_unsecure" in options and "migration" not in options:
        options["migration"] = "insecure" if options.pop("migration_unsecure") else "secure"
    if options.get("console") == "applet":
        options["console"] = "html5"
