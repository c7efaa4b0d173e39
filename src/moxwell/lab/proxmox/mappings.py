"""``/cluster/mapping``: PCI, USB and directory mappings, and their checks on a node."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.config_schema.property_strings import Values, split
from moxwell.lab.proxmox.errors import PveException, die
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
    assert_valid: Callable[[SimRegion, SimHost, str, Values], None]
    label: str = "hardware"


def check_pci(region: SimRegion, host: SimHost, name: str, values: Values) -> None:
    """Compare a PCI mapping with the devices of a node."""
    for path in values.get("path", "").split(";"):
        device = host.pci.get(path if "." in path else f"{path}.0")
        if device is None:
            raise die(f"pci device '{path}' not found")
        expected = {"id": f"{device['vendor']}:{device['device']}".replace("0x", "")}
        if device.get("iommugroup", -1) >= 0:
            expected["iommugroup"] = str(device["iommugroup"])
        for key, value in sorted(expected.items()):
            if values.get(key) is None:
                raise die(f"missing expected property '{key}' for device '{path}'")
            if values[key] != value:
                raise die(f"'{key}' does not match for '{name}' ({value} != {values[key]})")


def _check_usb(region: SimRegion, host: SimHost, name: str, values: Values) -> None:
    wanted, path = values.get("id", ""), values.get("path")
    found = [row for row in host.usb if f"{row['vendid']}:{row['prodid']}" == wanted]
    if path is not None and not any(row.get("usbpath") == path for row in host.usb):
        raise die(f"usb device '{path}' not found")
    if not found:
        raise die(f"usb device '{wanted}' not found")


def _check_dir(region: SimRegion, host: SimHost, name: str, values: Values) -> None:
    path = values.get("path", "")
    stores = [names.root_of(s) for s in region.storages.values() if names.has_path(s)]
    first = path.strip("/").partition("/")[0]
    known = path.rstrip("/") in {"", "/var", *stores} or path in region.files
    if not known and (first not in _FOLDERS or path.strip("/") != first):
        raise die(f"Path {path} does not exist")


PCI = MappingKind(
    "pci", SectionType.of("map", "description mdev live-migration-capable"), check_pci
)
_USB = MappingKind("usb", SectionType.of("map", "description"), _check_usb)
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
        for values in entries:
            try:
                self._kind.assert_valid(call.region, call.region.hosts[node], ident, values)
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
        self._kind.section.check(values, create=True)
        self._assert_paths(call, values)
        if ident in rows:
            text = f"{self._name} ID '{ident}' already defined"
            raise die(f"create {self._kind.label} mapping failed: {text}")
        rows[ident] = values

    def _assert_paths(self, call: PveCall, values: Row) -> None:
        """Directories must exist on this node when they are mapped."""
        for text in values.get("map", ()) if self._name == "dir" else ():
            entry = split(text, None)
            if entry.get("node") == call.node:
                self._kind.assert_valid(call.region, call.host, "", entry)

    def update(self, call: PveCall) -> None:
        values, rows = dict(call.params), self._rows(call)
        ident, deletes = values.pop("id"), formats.split_list(values.pop("delete", ""))
        digest = values.pop("digest", None)
        prefix = f"update {self._kind.label} mapping failed: "
        try:
            if ident not in rows:
                raise die(f"{self._name} ID '{ident}' does not exist")
            if digest is not None and digest != digest_of(rows):
                raise die(_MODIFIED)
            self._kind.section.check(values, create=True)
            changed = rows[ident] | values
            self._kind.section.delete(changed, values, deletes)
        except PveException as problem:
            raise die(prefix + problem.message) from problem
        rows[ident] = changed

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
