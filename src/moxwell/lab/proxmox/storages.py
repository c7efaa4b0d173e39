"""
``/storage`` (storage.cfg) and ``/nodes/{node}/storage``.

The options of each type are in ``storage_types``; volumes are in ``volumes``.
"""

import re
from typing import Any

from moxwell.lab.proxmox import pvestatd
from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import die, failing_as, param_error
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.state import SHARED_TYPES, Row, SimStorage
from moxwell.lab.proxmox.storage_types import (
    MOUNTED,
    SELECT_EXISTING,
    TYPES,
    StorageType,
    default_content,
)

_SEE = ("Datastore.Audit", "Datastore.AllocateSpace")
_ALWAYS_SHARED = SHARED_TYPES - {"glusterfs", "esxi"}


def config_row(call: PveCall, storage: SimStorage) -> Row:
    row: Row = {
        "storage": storage.name,
        "type": storage.type,
        "digest": config_digest(call),
        **storage.options,
    }
    return row | ({"shared": 1} if storage.type in _ALWAYS_SHARED else {})


def config_digest(call: PveCall) -> str:
    return digest_of({s.name: (s.type, s.options) for s in call.region.storages.values()})


def list_config(call: PveCall) -> list[Row]:
    return [
        config_row(call, storage)
        for storage in call.region.storages.values()
        if call.get("type", storage.type) == storage.type
        and call.has_privileges(f"/storage/{storage.name}", *_SEE, any_of=True)
    ]


def find(call: PveCall, name: str) -> SimStorage:
    storage = call.region.storages.get(name)
    if storage is None:
        raise die(f"storage '{name}' does not exist")
    return storage


def get_config(call: PveCall) -> Row:
    return config_row(call, find(call, call.params["storage"]))


def create(call: PveCall) -> Row:
    name, kind = call.params.pop("storage"), call.params.pop("type")
    options = _stored(call.params)
    if not options.get("nodes"):
        options.pop("nodes", None)
    if kind in MOUNTED:
        options.setdefault("path", f"/mnt/pve/{name}")
    _check_options(call, kind, options)
    for option in TYPES[kind].required:
        if option not in options:
            raise die(f"missing value for required option '{option}'")
    if kind in ("dir", "btrfs"):
        options["path"] = _folder(str(options["path"]))
    if name in call.region.storages:
        raise die(f"create storage failed: storage ID '{name}' already defined")
    with failing_as("create storage failed"):
        _check_base(call, options)
    options.setdefault("content", default_content(kind))
    call.region.storages[name] = SimStorage(name, kind, options, capacity=100 << 30)
    _restore_local(call)
    return {"storage": name, "type": kind}


def _check_options(call: PveCall, kind: str, options: dict[str, Any]) -> None:
    for option in options:
        if not TYPES[kind].has_option(option, call.major):
            raise die(f"unexpected property '{option}'")
    if "content" in options:
        options["content"] = _fitting(str(options["content"]), TYPES[kind])
    if "format" in options and options["format"] not in TYPES[kind].formats:
        del options["format"]


def _fitting(content: str, kind: StorageType) -> str:
    """The content types that the storage type supports; PVE drops the others with a warning."""
    kept = [c for c in formats.split_list(content) if c in kind.content]
    if "none" in kept and len(kept) > 1:
        raise die("unable to combine 'none' with other content types")
    if not kept and "none" not in kind.content:
        raise die("storage does not support content type 'none'")
    return ",".join(kept) or "none"


def _folder(path: str) -> str:
    """The canonical form of a path."""
    if not re.fullmatch(r"/[-/a-zA-Z0-9_.@]+", path):
        raise die(f"illegal path for directory storage: {path}")
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def _check_base(call: PveCall, options: dict[str, Any]) -> None:
    """A volume group on an iSCSI storage."""
    base = str(options.get("base") or "").partition(":")[0]
    if not base:
        return
    known = call.region.storages.get(base)
    if known is None:
        raise die(f"base storage ID '{base}' does not exist")
    if known.type != "iscsi":
        raise die(f"unsupported base type '{known.type}'")


def _stored(params: dict[str, Any]) -> dict[str, Any]:
    """Options as stored: no duplicates in lists, no secrets."""
    secret = {"password", "encryption-key", "master-pubkey", "keyring"}
    kept = {k: v for k, v in params.items() if k not in secret | {"delete", "digest"}}
    if "content" in kept:
        kept["content"] = ",".join(dict.fromkeys(formats.split_list(kept["content"])))
    return kept


def update(call: PveCall) -> Row:
    with failing_as("update storage failed"):
        return _update(call)


def _update(call: PveCall) -> Row:
    digest = call.params.get("digest")
    if digest and digest != config_digest(call):
        raise die("detected modified configuration - file changed by other user? Try again.")
    storage = find(call, call.params.pop("storage"))
    kind, new = TYPES[storage.type], _stored(call.params)
    for option in new:
        if option in kind.fixed:
            raise die(f"can't change value of fixed parameter '{option}'")
    _check_options(call, storage.type, new)
    removed = formats.split_list(call.params.get("delete", ""))
    for option in removed:
        if not kind.has_option(option, call.major):
            raise die(f"no such option '{option}'")
        if option in kind.required:
            raise die(f"unable to delete required option '{option}'")
        if option in kind.fixed:
            raise die(f"unable to delete fixed option '{option}'")
        if option in new:
            raise die(f"cannot set and delete property '{option}' at the same time!")
    for option in removed:
        storage.options.pop(option, None)
    storage.options.update(new)
    storage.options.setdefault("content", kind.default_content)
    _restore_local(call)
    return {"storage": storage.name, "type": storage.type}


def _restore_local(call: PveCall) -> None:
    """``local`` always exists, on all nodes."""
    local = call.region.storages.get("local")
    if local is None:
        content = "backup,images,iso,rootdir,snippets,vztmpl"
        options = {"path": "/var/lib/vz", "prune-backups": "keep-all=1", "content": content}
        local = call.region.storages["local"] = SimStorage("local", "dir", options, 100 << 30)
    local.options.pop("nodes", None)


def delete(call: PveCall) -> None:
    with failing_as("delete storage failed"):
        storage = find(call, call.params["storage"])
        bases = [str(s.options.get("base") or "") for s in call.region.storages.values()]
        if any(base.partition(":")[0] == storage.name for base in bases):
            raise die("can't remove storage - storage is used as base of another storage")
    del call.region.storages[storage.name]
    if storage.name == "local":
        _restore_local(call)
        call.region.storages["local"].volumes = storage.volumes
    access = call.region.access
    access.acl = [a for a in access.acl if a.path != f"/storage/{storage.name}"]
    for pool in call.region.pools.values():
        if storage.name in pool.storages:
            pool.storages.remove(storage.name)


# ---------------------------------------------------------------- per node


def node_row(storage: SimStorage, node: str) -> Row:
    enabled = int(not storage.options.get("disable") and storage.is_available_on(node))
    row: Row = {
        "type": storage.type,
        "content": storage.options.get("content", ""),
        "shared": int(storage.shared),
        "enabled": enabled,
        "active": enabled,
        "total": 0,
        "used": 0,
        "avail": 0,
    }
    if enabled:
        row |= pvestatd.storage_row(storage, node)
    return row


def list_node(call: PveCall) -> list[Row]:
    """GET storage of a node; one that is not available there is listed as disabled."""
    known = [s for s in call.region.storages.values() if _has_content(call, s)]
    wanted = call.get("storage")
    if wanted is not None and wanted not in {storage.name for storage in known}:
        raise param_error({"storage": "No such storage."})
    rows = []
    for storage in known:
        if wanted in {None, storage.name} and _listed(call, storage):
            row = {"storage": storage.name, **node_row(storage, call.node)}
            if row["total"]:
                row["used_fraction"] = row["used"] / row["total"]
            if row["enabled"] and call.get("format"):
                row |= _formats(call, storage)
            rows.append(row)
    return rows


def _has_content(call: PveCall, storage: SimStorage) -> bool:
    """Without ``content`` all storages count, otherwise those that are enabled here."""
    kinds = call.get("content")
    if kinds is None:
        return True
    enabled = not storage.options.get("disable") and storage.is_available_on(call.node)
    return enabled and bool(set(formats.split_list(kinds)) & storage.content)


def _listed(call: PveCall, storage: SimStorage) -> bool:
    target = call.get("target")
    if target is not None and target not in (call.node, "localhost"):
        both = storage.is_available_on(call.node) and storage.is_available_on(target)
        if not both or not storage.shared:
            return False
    return not (call.get("enabled") and storage.options.get("disable")) and call.has_privileges(
        f"/storage/{storage.name}", *_SEE, any_of=True
    )


def _formats(call: PveCall, storage: SimStorage) -> Row:
    """The image formats that a storage supports."""
    kind = TYPES[storage.type]
    row: Row = {}
    known, default = kind.formats, str(storage.options.get("format") or "raw")
    if storage.type == "lvm" and storage.options.get("snapshot-as-volume-chain"):
        known, default = ("qcow2", "raw"), "qcow2"
    if call.major >= 9:
        row["formats"] = {"supported": sorted(known), "default": default}
    if call.major >= 9 or kind.lists_formats:
        row["format"] = [dict.fromkeys(known, 1), default if call.major >= 9 else "raw"]
    if storage.type in SELECT_EXISTING:
        row["select_existing"] = 1
    return row


def node_status(call: PveCall) -> Row:
    storage = call.region.storages.get(call.params["storage"])
    if storage is None:
        raise param_error({"storage": "No such storage."})
    return node_row(storage, call.node)


_ALLOCATE = perm("/storage", "Datastore.Allocate")


ROUTES = (
    ApiRoute("GET", "/storage", list_config, permission=anyone),
    ApiRoute("POST", "/storage", create, permission=_ALLOCATE),
    ApiRoute(
        "GET",
        "/storage/{storage}",
        get_config,
        permission=perm("/storage/{storage}", "Datastore.Allocate"),
    ),
    ApiRoute(
        "PUT",
        "/storage/{storage}",
        update,
        permission=_ALLOCATE,
    ),
    ApiRoute("DELETE", "/storage/{storage}", delete, permission=_ALLOCATE),
    ApiRoute(
        "GET",
        "/nodes/{node}/storage",
        list_node,
        permission=anyone,
    ),
    ApiRoute(
        "GET",
        "/nodes/{node}/storage/{storage}/status",
        node_status,
        permission=perm("/storage/{storage}", *_SEE, any_of=True),
    ),
)
