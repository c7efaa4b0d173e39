"""
Storages and volumes of a world file.
"""

import re
from datetime import UTC, datetime
from typing import Any

from moxwell.lab.proxmox.state import FileData, SimRegion, SimStorage, SimVolume
from moxwell.lab.proxmox.storage_types import MOUNTED, TYPES, default_content
from moxwell.lab.proxmox.volumes.archives import GuestArchive
from moxwell.lab.proxmox.yaml_tree import YamlTree

_CONTENT = {
    "iso": "iso",
    "vztmpl": "vztmpl",
    "import": "import",
    "snippets": "snippets",
    "backup": "backup",
}
_BACKUP = re.compile(r"backup/vzdump-(qemu|lxc)-(\d+)-([\d_]+-[\d_]+)\.((?:vma|tar)(?:\.\w+)?)")
_KNOWN_FIELDS = {"storage", "type", "capacity", "used", "volumes"}


def read_storage(tree: YamlTree, region: SimRegion, now: float) -> SimStorage:
    name, kind = tree.text("storage"), tree.choice("type", tuple(sorted(TYPES)))
    if name in region.storages:
        raise tree.get("storage").error(f"storage '{name}' is defined twice")
    options: dict[str, Any] = {}
    for field, value in tree.fields():
        if field not in _KNOWN_FIELDS:
            options[field] = _option(field, value)
    if kind in MOUNTED:
        options.setdefault("path", f"/mnt/pve/{name}")
    required, allowed = TYPES[kind].required, TYPES[kind].optional | {"shared"}
    for field in options:
        if field not in allowed and field not in required:
            raise tree.get(field).error(f"type {kind} has no option '{field}'")
    for field in required:
        if field not in options:
            raise tree.error(f"field '{field}' is missing (required for type {kind})")
    options.setdefault("content", default_content(kind))
    storage = SimStorage(name, kind, options, capacity=tree.size("capacity", 100 << 30))
    storage.used_extra = tree.size("used", 0)
    for one in tree.items("volumes"):
        _volume(one, region, storage, now)
    return storage


def _option(field: str, tree: YamlTree) -> Any:
    value = tree.value()
    if field in {"shared", "disable"}:
        return int(bool(value))
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return int(value) if isinstance(value, bool) else value


def _volume(tree: YamlTree, region: SimRegion, storage: SimStorage, now: float) -> None:
    prefix, _, name = tree.text("volid").partition(":")
    if prefix != storage.name or not name:
        raise tree.get("volid").error(f"must start with '{storage.name}:'")
    size = tree.size("size")
    content = _CONTENT.get(name.partition("/")[0], "images")
    volume = SimVolume(name, tree.text("format", _format(name)), content, size, used=size)
    volume.size = tree.size("virtual_size", size)
    volume.ctime = int(now)
    volume.vmid = tree.integer("vmid", 0) or None
    _set_archive(tree, volume)
    text = tree.find("text")
    if text is not None:
        volume.data = FileData(str(text.value()).encode())
    node = tree.text("node", "")
    if node and node not in region.hosts:
        raise tree.get("node").error(f"node '{node}' does not exist")
    nodes = [""] if storage.shared else ([node] if node else list(region.hosts))
    for where in nodes:
        storage.volumes.setdefault(where, {})[name] = volume
    tree.text("what", "")
    tree.done()


def _set_archive(tree: YamlTree, volume: SimVolume) -> None:
    """A backup: the guest type and time are part of its name, ``config`` is what it contains."""
    match = _BACKUP.fullmatch(volume.name)
    if match is None:
        return
    config = tree.find("config")
    volume.vmid, volume.format = int(match[2]), match[4]
    stamp = datetime.strptime(match[3], "%Y_%m_%d-%H_%M_%S").replace(tzinfo=UTC)
    volume.ctime = int(stamp.timestamp())
    conf = dict(config.value()) if config else {}
    volume.data = FileData(GuestArchive(match[1], conf).encode())


def _format(name: str) -> str:
    for ending, kind in (
        (".iso", "iso"),
        (".img", "iso"),
        (".tar.gz", "tgz"),
        (".tar.zst", "tzst"),
        (".tar.xz", "txz"),
        (".qcow2", "qcow2"),
        (".vmdk", "vmdk"),
        (".ova", "ova"),
        (".raw", "raw"),
    ):
        if name.endswith(ending):
            return "raw" if ending == ".img" and name.startswith("import/") else kind
    return "snippet" if name.startswith("snippets/") else "raw"
