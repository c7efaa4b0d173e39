"""
``/storage`` (storage.cfg) and ``/nodes/{node}/storage``.

The options of each type are in ``storage_types``; volumes are in ``volumes``.
"""

from typing import Any

from moxwell.lab.proxmox import pvestatd
from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import die, param_error
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import anyone, perm
from moxwell.lab.proxmox.state import Row, SimStorage
from moxwell.lab.proxmox.storage_types import (
    FIXED,
    TYPES,
    default_content,
    supported_content,
)

_SEE = ("Datastore.Audit", "Datastore.AllocateSpace")


def config_row(call: PveCall, storage: SimStorage) -> Row:
    return {
        "storage": storage.name,
        "type": storage.type,
        "digest": config_digest(call),
        **storage.options,
    }


def config_digest(call: PveCall) -> str:
    return digest_of({s.name: (s.type, s.options) for s in call.region.storages.values()})


def list_config(call: PveCall) -> list[Row]:
    return [
        config_row(call, storage)
        for storage in call.region.storages.values()
        if call.get("type", storage.type) == storage.type
        and call.has_privileges(f"/storage/{storage.name}", *_SEE, any_of=True)
    ]


def find(call: PveCall, name: str, error_prefix: str = "") -> SimStorage:
    storage = call.region.storages.get(name)
    if storage is None:
        raise die(f"{error_prefix}storage '{name}' does not exist")
    return storage


def get_config(call: PveCall) -> Row:
    return config_row(call, find(call, call.params["storage"]))


def create(call: PveCall) -> Row:
    name, kind = call.params.pop("storage"), call.params.pop("type")
    options = _stored(call.params)
    required, allowed = TYPES[kind]
    for option in options:
        if option not in allowed and option not in required:
            raise die(f"unexpected property '{option}'")
    _fit_content(options, kind)
    for option in required:
        if option not in options:
            raise die(f"missing value for required option '{option}'")
    if name in call.region.storages:
        raise die(f"create storage failed: storage ID '{name}' already defined")
    options.setdefault("content", default_content(kind))
    call.region.storages[name] = SimStorage(name, kind, options, capacity=100 << 30)
    return {"storage": name, "type": kind}


def _fit_content(options: dict[str, Any], kind: str) -> None:
    """Remove content types that the storage type does not support."""
    if "content" not in options:
        return
    requested = formats.split_list(options["content"])
    kept = [c for c in requested if c in supported_content(kind)]
    if "none" in kept and len(kept) > 1:
        raise die("unable to combine 'none' with other content types")
    if not kept and "none" not in supported_content(kind):
        raise die("storage does not support content type 'none'")
    options["content"] = ",".join(kept)


def _stored(params: dict[str, Any]) -> dict[str, Any]:
    """Options as stored: sorted lists, no passwords."""
    kept = {k: v for k, v in params.items() if k not in {"password", "delete", "digest"}}
    if "content" in kept:
        kept["content"] = ",".join(dict.fromkeys(formats.split_list(kept["content"])))
    return kept


def update(call: PveCall) -> Row:
    error_prefix = "update storage failed: "
    storage = find(call, call.params.pop("storage"), error_prefix)
    digest = call.params.get("digest")
    if digest and digest != config_digest(call):
        text = "detected modified configuration - file changed by other user? Try again."
        raise die(error_prefix + text)
    removed = formats.split_list(call.params.get("delete", ""))
    required, allowed = TYPES[storage.type]
    for option in removed:
        if option not in allowed and option not in required:
            raise die(f"{error_prefix}no such option '{option}'")
        if option in required:
            raise die(f"{error_prefix}unable to delete required option '{option}'")
        if option in FIXED:
            raise die(f"{error_prefix}unable to delete fixed option '{option}'")
    new = _stored(call.params)
    for option in new:
        if option in FIXED and option in required:
            raise die(f"{error_prefix}can't change value of fixed parameter '{option}'")
        if option not in allowed and option not in required:
            raise die(f"{error_prefix}unexpected property '{option}'")
    _fit_content(new, storage.type)
    for option in removed:
        if option in new:
            raise die(f"{error_prefix}cannot set and delete property '{option}' at the same time!")
        storage.options.pop(option, None)
    storage.options.update(new)
    return {"storage": storage.name, "type": storage.type}


def delete(call: PveCall) -> None:
    storage = find(call, call.params["storage"], "delete storage failed: ")
    del call.region.storages[storage.name]
    access = call.region.access
    access.acl = [a for a in access.acl if a.path != f"/storage/{storage.name}"]


# ---------------------------------------------------------------- per node


def node_row(storage: SimStorage, node: str) -> Row:
    enabled = int(not storage.options.get("disable"))
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
    wanted = call.get("storage")
    if wanted is not None and wanted not in call.region.storages:
        raise param_error({"storage": "No such storage."})
    rows = []
    for storage in call.region.storages.values():
        if wanted in {None, storage.name} and _listed(call, storage):
            row = {"storage": storage.name, **node_row(storage, call.node)}
            if row["total"]:
                row["used_fraction"] = row["used"] / row["total"]
            rows.append(row)
    return rows


def _listed(call: PveCall, storage: SimStorage) -> bool:
    kinds = set(formats.split_list(call.get("content", "")))
    target = call.get("target")
    return (
        storage.is_available_on(call.node)
        and (
            target is None
            or (storage.is_available_on(target) and (storage.shared or target == call.node))
        )
        and (not kinds or bool(kinds & storage.content))
        and not (call.get("enabled") and storage.options.get("disable"))
        and call.has_privileges(f"/storage/{storage.name}", *_SEE, any_of=True)
    )


def node_status(call: PveCall) -> Row:
    storage = call.region.storages.get(call.params["storage"])
    if storage is None:
        raise param_error({"storage": "No such storage."})
    if not storage.is_available_on(call.node):
        raise die(f"storage '{storage.name}' is not available on node '{call.node}'")
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
