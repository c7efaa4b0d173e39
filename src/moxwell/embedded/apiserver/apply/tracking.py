"""
Updates managedFields during create, update and apply.

An object without managedFields stays untracked on update, because its writer cleared them, until
somebody applies; then its fields belong to ``before-first-apply``. A change of times alone is no
change.
"""

import copy
from typing import Any

import msgspec

from moxwell.embedded.apiserver.apply import field_sets, typed_values
from moxwell.embedded.apiserver.apply import managed_fields as who
from moxwell.embedded.apiserver.apply.field_sets import Node
from moxwell.embedded.apiserver.apply.server_side_apply import (
    FieldConflict,
    FieldManager,
    VersionView,
)
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.request_info import ApiCall
from moxwell.embedded.apiserver.resources import ServedResource

Object = dict[str, Any]
KUBECTL = "kubectl"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def field_manager(core: ServerContext, call: ApiCall) -> FieldManager:
    """Build the field manager of the object a call is about."""
    resource = call.resource
    known: dict[str, VersionView | None] = {}

    def view(version: str) -> VersionView | None:
        if version not in known:
            known[version] = _view(core, resource, version)
        return known[version]

    return FieldManager(view, resource.api_version, lambda fields: _allowed(call, fields))


def _view(core: ServerContext, resource: ServedResource, version: str) -> VersionView | None:
    if version == resource.api_version:
        return VersionView(version, resource.model.merge_schema, lambda obj: obj)
    group, _, short = version.rpartition("/")
    other = core.registry.find(group, short, resource.plural)
    if other is None or other.group_resource != resource.group_resource:
        return None

    def into(obj: Object) -> Object:
        if obj.get("apiVersion") == version:
            return obj
        return other.between(copy.deepcopy(obj), version)

    return VersionView(version, other.model.merge_schema, into)


def _allowed(call: ApiCall, fields: Node) -> Node:
    """Remove fields that the endpoint resets, because they cannot be owned through it."""
    if not call.resource.status:
        return fields
    if call.subresource == "status":
        meta = fields.get("f:metadata", {})
        kept = field_sets.only(fields, ("f:status",))
        if not call.resource.custom and "f:annotations" in meta:
            kept["f:metadata"] = {"f:annotations": meta["f:annotations"]}
        return kept
    return {key: value for key, value in fields.items() if key != "f:status"}


def on_create(core: ServerContext, call: ApiCall, obj: Object) -> None:
    """Set the managedFields of a new object: its writer owns its fields."""
    resource = call.resource
    obj["metadata"].pop("managedFields", None)
    me = who.updater(call.manager, call.subresource, resource.api_version)
    made = field_manager(core, call).update(_empty(resource), _without(obj), {}, me, core.now())
    _write(obj, made)


def on_update(core: ServerContext, call: ApiCall, old: Object, new: Object) -> None:
    """Update managedFields after an update: the writer owns the fields it changed."""
    entries = new["metadata"].pop("managedFields", None)
    before = old["metadata"].get("managedFields")
    if entries is not None and (entries == [] or entries == [{}]):
        return  # the writer clears managedFields
    managers = who.read(entries if entries else before)
    if not managers and not before:
        return
    me = who.updater(call.manager, call.subresource, call.resource.api_version)
    made = field_manager(core, call).update(_without(old), _without(new), managers, me, core.now())
    _write(new, who.Capped(made).result())


def apply(
    core: ServerContext, call: ApiCall, live: Object | None, config: Object, *, force: bool
) -> Object:
    """Return the object that results from an apply, with its managedFields."""
    resource, me = call.resource, who.applier(call.manager, call.subresource)
    base = live
    if base is None:
        base = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}}
    managers = who.read(base["metadata"].get("managedFields"))
    book = field_manager(core, call)
    if live is not None and not managers:
        managers = _before_first_apply(core, book, resource, live)
    try:
        made, managers = book.apply(_without(base), config, managers, me, force=force)
    except FieldConflict as conflict:
        if not _was_applied(resource, base, conflict, call.manager):
            raise
        made, managers = book.apply(_without(base), config, managers, me, force=True)
    made = {**made, "metadata": dict(made.get("metadata") or {})}
    if call.manager == KUBECTL:
        _sync_last_applied(made, config)
    if live is None or made != _without(live):
        managers = {
            m: who.OwnedFields(o.fields, o.version, core.now()) if m == me else o
            for m, o in managers.items()
        }
    _write(made, managers)
    return made


def _last_applied(obj: Object) -> Any:
    text = (obj["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    if not text:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


def _was_applied(
    resource: ServedResource, live: Object, conflict: FieldConflict, manager: str
) -> bool:
    """Report whether client-side apply of kubectl set the contested fields."""
    last = _last_applied(live) if manager == KUBECTL else None
    if not isinstance(last, dict):
        return False
    return not field_sets.difference(
        conflict.fields, typed_values.fields_of(last, resource.model.merge_schema)
    )


def _sync_last_applied(made: Object, config: Object) -> None:
    annotations = made["metadata"].get("annotations") or {}
    if LAST_APPLIED in annotations:
        meta = {k: v for k, v in config["metadata"].items() if k != "managedFields"}
        text = msgspec.json.encode({**config, "metadata": meta}).decode() + "\n"
        made["metadata"]["annotations"] = {**annotations, LAST_APPLIED: text}


def _empty(resource: ServedResource) -> Object:
    """Return the empty object to compare with: Go's structs always encode some fields."""
    empty: Object = {"apiVersion": resource.api_version, "kind": resource.kind}
    return empty if resource.custom else resource.model.decode(empty, None)


def _before_first_apply(
    core: ServerContext, book: FieldManager, resource: ServedResource, live: Object
) -> who.Managers:
    me = who.updater("before-first-apply", "", resource.api_version)
    return book.update(_empty(resource), _without(live), {}, me, core.now())


def _without(obj: Object) -> Object:
    """Return the object without managedFields and last-applied annotation."""
    meta = {
        k: v for k, v in obj["metadata"].items() if k not in ("managedFields", "resourceVersion")
    }
    return {**obj, "metadata": meta}


def _write(obj: Object, managers: who.Managers) -> None:
    entries = who.write(managers)
    if entries:
        obj["metadata"]["managedFields"] = entries
    else:
        obj["metadata"].pop("managedFields", None)


def keep_times(new: Object, old: Object) -> None:
    """Keep the old times if nothing else changed."""
    mine, theirs = new["metadata"].get("managedFields"), old["metadata"].get("managedFields")
    if mine == theirs or not mine or not theirs:
        return
    if _timeless(mine) == _timeless(theirs):
        skip = ("managedFields", "resourceVersion")
        a = {k: v for k, v in new["metadata"].items() if k not in skip}
        b = {k: v for k, v in old["metadata"].items() if k not in skip}
        if a == b and {**new, "metadata": 0} == {**old, "metadata": 0}:
            new["metadata"]["managedFields"] = theirs


def _timeless(entries: list[Object]) -> list[Object]:
    return [{k: v for k, v in entry.items() if k != "time"} for entry in entries]
