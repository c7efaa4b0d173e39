"""``/cluster/mapping``: PCI, USB and directory mappings, and their checks on a node."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.config_schema.property_strings import Values, split
from moxwell.lab.proxmox.errors import PveException, die, failing_as
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import by_schema
from moxwell.lab.proxmox.section_config import SectionType
from moxwell.lab.proxmox.state import Row, SimHost, SimRegion
from moxwell.lab.proxmox.volumes import names

_FOLDERS = ("bin", "boot", "dev", "etc", "home", "media", "mnt", "opt", "root", "srv", "tmp", "usr")
_MODIFIED = "detected modified configuration - file changed by other user? Try again."


@dataclass(frozen=True, slots=True)
class MappingKind:
    """One kind of mapping."""

    kind: str
    section: SectionType
    assert_valid: Callable[[SimRegion, SimHost, str, Values, int], None]
    label: str = "hardware"


def check_pci(region: SimRegion, host: SimHost, name: str, values: Values, mdev: int = 0) -> None:
    """Compare a PCI mapping with the devices of a node."""
    for number, given in enumerate(values.get("path", "").split(";")):
        path = given if "." in given else f"{given}.0"
        device = host.pci.get(path)
        if device is None:
            raise die(f"pci device '{path}' not found")
        expected = _properties(device) | {"mdev": str(1 if device.get("mdev") else 0)}
        configured = {**values, "mdev": str(1 if mdev else 0)}
        for key in ("id", "iommugroup", "mdev", "subsystem-id"):
            if key != "iommugroup" or number == 0:
                _compare(name, path, key, expected.get(key), configured.get(key))


def _properties(device: Row) -> dict[str, str]:
    """What a mapping must say of a device."""
    found = {"id": f"{device['vendor']}:{device['device']}".replace("0x", "")}
    if device.get("iommugroup", -1) >= 0:
        found["iommugroup"] = str(device["iommugroup"])
    if "subsystem_vendor" in device and "subsystem_device" in device:
        text = f"{device['subsystem_vendor']}:{device['subsystem_device']}"
        found["subsystem-id"] = text.replace("0x", "")
    return found


def _compare(name: str, path: str, key: str, expected: str | None, given: str | None) -> None:
    if expected is not None and given is None:
        raise die(f"missing expected property '{key}' for device '{path}'")
    if expected is None and given is not None:
        raise die(f"unexpected property '{key}' configured for device '{path}'")
    if expected is not None and given is not None and expected != given.replace("0x", ""):
        raise die(f"'{key}' does not match for '{name}' ({expected} != {given})")


def check_usb(region: SimRegion, host: SimHost, name: str, values: Values, mdev: int = 0) -> None:
    """Compare a USB mapping with the devices of a node."""
    wanted, path = values.get("id", ""), values.get("path")
    ids = [
        f"{row['vendid']}:{row['prodid']}"
        for row in host.usb
        if path is None or f"{row.get('busnum')}-{row.get('usbpath')}" == path
    ]
    if path is not None and not ids:
        raise die(f"usb device '{path}' not found")
    if path is not None and ids[-1] != wanted:
        raise die(f"'id' does not match for '{name}' ({ids[-1]} != {wanted})")
    if wanted not in ids:
        raise die(f"usb device '{wanted}' not found")


def _check_dir(region: SimRegion, host: SimHost, name: str, values: Values, mdev: int = 0) -> None:
    path = values.get("path", "")
    stores = [names.root_of(s) for s in region.storages.values() if names.has_path(s)]
    first = path.strip("/").partition("/")[0]
    known = path.rstrip("/") in {"", "/var", *stores} or path in region.files
    if not known and (first not in _FOLDERS or path.strip("/") != first):
        raise die(f"Path {path} does not exist")


PCI = MappingKind(
    "pci", SectionType.of("map", "description mdev live-migration-capable"), check_pci
)
_USB = MappingKind("usb", SectionType.of("map", "description"), check_usb)
_DIR = MappingKind("dir", SectionType.of("map", "description"), _check_dir, "directory")


def node_maps(region: SimRegion, kind: str, ident: str, node: str) -> list[Values]:
    """The entries of a mapping for a node."""
    row = region.mappings.get(kind, {}).get(ident, {})
    return [v for text in row.get("map", ()) if (v := split(text, None)).get("node") == node]


class MappingEndpoints:
    """The endpoints of one kind of mapping."""

    def __init__(self, kind: MappingKind) -> None:
        self._kind, self._name = kind, kind.kind

    def _rows(self, call: PveCall) -> dict[str, Row]:
        return call.region.mappings.setdefault(self._name, {})

    def list(self, call: PveCall) -> list[Row]:
        rows, stamp, found = self._rows(call), digest_of(self._rows(call)), []
        privileges = ("Mapping.Use", "Mapping.Modify", "Mapping.Audit")
        for ident, row in rows.items():
            if call.has_privileges(f"/mapping/{self._name}/{ident}", *privileges, any_of=True):
                shown = {"id": ident, "type": self._name, "digest": stamp, **row}
                found.append(shown | self._checks(call, ident))
        return found

    def _checks(self, call: PveCall, ident: str) -> dict[str, Any]:
        node = call.get("check-node")
        if node is None:
            return {}
        key = "errors" if self._name == "usb" else "checks"
        entries, problems = node_maps(call.region, self._name, ident, node), []
        if not entries:
            text = f"No mapping for node {node}."
            return {key: [{"severity": "warning", "message": text}]}
        mdev = int(self._rows(call)[ident].get("mdev") or 0)
        for values in entries:
            try:
                self._kind.assert_valid(call.region, call.region.hosts[node], ident, values, mdev)
            except PveException as problem:
                text = f"Invalid configuration: {problem.message}\n"
                problems.append({"severity": "error", "message": text})
        return {key: problems}

    def get(self, call: PveCall) -> Row:
        rows, ident = self._rows(call), call.params["id"]
        if ident not in rows:
            raise die(f"mapping '{ident}' not found")
        return {"type": self._name, "digest": digest_of(rows), **rows[ident]}

    def create(self, call: PveCall) -> None:
        values, rows = dict(call.params), self._rows(call)
        ident = values.pop("id")
        self._assert_paths(call, values)
        self._kind.section.check(values, create=True)
        with failing_as(f"create {self._kind.label} mapping failed"):
            if ident in rows:
                raise die(f"{self._name} ID '{ident}' already defined")
        rows[ident] = values

    def _assert_paths(self, call: PveCall, values: Row) -> None:
        """Directories must exist on this node when they are mapped."""
        counts: Counter[str] = Counter()
        for text in values.get("map", ()) if self._name == "dir" else ():
            entry = split(text, None)
            if entry.get("node") == call.node:
                self._kind.assert_valid(call.region, call.host, "", entry, 0)
            counts[entry.get("node", "")] += 1
        for node, count in counts.items():
            if count > 1:
                raise die(f"Node '{node}' is specified {count} times.")

    def update(self, call: PveCall) -> None:
        values, rows = dict(call.params), self._rows(call)
        ident, deletes = values.pop("id"), formats.split_list(values.pop("delete", ""))
        digest = values.pop("digest", None)
        with failing_as(f"update {self._kind.label} mapping failed"):
            if digest is not None and digest != digest_of(rows):
                raise die(_MODIFIED)
            if ident not in rows:
                raise die(f"{self._name} ID '{ident}' does not exist")
            self._kind.section.check(values, create=True)
            self._assert_paths(call, values)
            changed = dict(rows[ident])
            self._kind.section.delete(changed, values, deletes)
        rows[ident] = changed | values

    def delete(self, call: PveCall) -> None:
        self._rows(call).pop(call.params["id"], None)


def _routes(kind: MappingKind) -> tuple[ApiRoute, ...]:
    base, ends = f"/cluster/mapping/{kind.kind}", MappingEndpoints(kind)
    since = 9 if kind.kind == "dir" else 0
    return tuple(
        ApiRoute(method, path, handler, permission=by_schema, version=since)
        for method, path, handler in (
            ("GET", base, ends.list),
            ("POST", base, ends.create),
            ("GET", f"{base}/{{id}}", ends.get),
            ("PUT", f"{base}/{{id}}", ends.update),
            ("DELETE", f"{base}/{{id}}", ends.delete),
        )
    )


ROUTES = (*_routes(PCI), *_routes(_USB), *_routes(_DIR))
