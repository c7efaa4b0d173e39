"""
Server-side apply and field ownership as pure functions on objects and managers.

``apply`` merges a configuration into the live object, removes fields that this manager applied
before and no longer does (unless others own them), and rejects changes of fields that others own.
``update`` moves changed fields to the manager that changed them. Managers may have written in other
versions; ``Views`` gives an object and its schema in each version.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.apply import field_sets, typed_values
from moxwell.embedded.apiserver.apply.field_sets import Node
from moxwell.embedded.apiserver.apply.managed_fields import ManagerKey, Managers, OwnedFields
from moxwell.embedded.apiserver.merge_schema import MergeSchema

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class VersionView:
    """One version: its schema and the conversion of objects into it."""

    version: str
    schema: MergeSchema
    into: Callable[[Object], Object]


Views = Callable[[str], VersionView | None]  # None: the version is no longer served
_META = ("name", "namespace", "creationTimestamp", "selfLink", "uid", "generation")
STRIPPED: Node = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        ".": {},
        **{f"f:{name}": {} for name in (*_META, "managedFields", "resourceVersion")},
    },
}


class FieldConflict(status_errors.StatusError):
    """Other managers own fields that the apply would change; ``fields`` are those fields."""

    def __init__(self, message: str, causes: list[status_errors.ErrorCause], fields: Node) -> None:
        details = {"causes": [c.as_dict() for c in causes]}
        super().__init__(409, "Conflict", message, details=details)
        self.fields = fields


def conflict_error(conflicts: list[tuple[ManagerKey, str, str]], fields: Node) -> FieldConflict:
    """Build the conflict error from (manager, version, path) entries."""
    causes = [
        status_errors.ErrorCause(
            "FieldManagerConflict", f"conflict with {who.shown(version)}", path
        )
        for who, version, path in conflicts
    ]
    if len(conflicts) == 1:
        who, version, path = conflicts[0]
        text = f"Apply failed with 1 conflict: conflict with {who.shown(version)}: {path}"
    else:
        lines, last = [], None
        for who, version, path in conflicts:
            if who != last:
                lines.append(f"conflicts with {who.shown(version)}:")
                last = who
            lines.append(f"- {path}")
        text = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    return FieldConflict(text, causes, fields)


class FieldManager:
    """Computes field ownership of one object in one version."""

    def __init__(self, views: Views, version: str, ignored: Callable[[Node], Node]) -> None:
        self._views, self._version, self._ignored = views, version, ignored

    def _view(self, version: str) -> VersionView:
        view = self._views(version) or self._views(self._version)
        if view is None:
            raise status_errors.internal(f"version {version} is not served")
        return view

    def kept(self, fields: Node) -> Node:
        """Return the fields of a set that can be owned."""
        return self._ignored(field_sets.difference(fields, STRIPPED))

    def update(
        self, old: Object, new: Object, managers: Managers, me: ManagerKey, now: str
    ) -> Managers:
        """After an update: the changed fields belong to ``me``."""
        compared, managers = self._moved(old, new, managers, None, force=True)
        mine = managers.get(me)
        before = mine.fields if mine else {}
        gained = self.kept(compared.changed())
        fields = field_sets.union(field_sets.difference(before, compared.removed), gained)
        if fields and (mine is None or fields != before or not compared.same):
            time = now if gained or mine is None else mine.time
            managers[me] = OwnedFields(fields, self._version, time)
        elif not fields:
            managers.pop(me, None)
        return managers

    def apply(
        self, live: Object, config: Object, managers: Managers, me: ManagerKey, *, force: bool
    ) -> tuple[Object, Managers]:
        """Return the merged object and the new managers; raises FieldConflict."""
        schema = self._view(self._version).schema
        fields = self.kept(typed_values.fields_of(config, schema))
        merged = typed_values.merge(live, config, schema)
        before = managers.get(me)
        managers = dict(managers)
        managers[me] = OwnedFields(fields, self._version, before.time if before else "")
        merged = self._pruned(merged, managers, before)
        _, managers = self._moved(live, merged, managers, me, force=force)
        if not fields:
            managers.pop(me, None)
        return merged, managers

    def _moved(
        self, old: Object, new: Object, managers: Managers, me: ManagerKey | None, *, force: bool
    ) -> tuple[typed_values.Comparison, Managers]:
        """
        Take changed and removed fields from all managers but ``me``; a conflict unless forced.
        """
        seen: dict[str, typed_values.Comparison] = {}
        conflicts: list[tuple[ManagerKey, str, str]] = []
        contested: Node = {}
        kept: Managers = {}
        for who in sorted(managers):
            what = managers[who]
            if who == me:
                kept[who] = what
                continue
            if self._views(what.version) is None:
                continue
            compared = self._compared(seen, what.version, old, new)
            taken = field_sets.intersection(what.fields, compared.changed())
            if not force:
                conflicts += [(who, what.version, path) for path in field_sets.paths(taken)]
                contested = field_sets.union(contested, taken)
            fields = field_sets.difference(
                field_sets.difference(what.fields, taken), compared.removed
            )
            if fields:
                kept[who] = what if fields == what.fields else replace(what, fields=fields)
        if conflicts:
            raise conflict_error(conflicts, contested)
        return self._compared(seen, self._version, old, new), kept

    def _compared(
        self, seen: dict[str, typed_values.Comparison], version: str, old: Object, new: Object
    ) -> typed_values.Comparison:
        if version not in seen:
            view = self._view(version)
            found = typed_values.compare(view.into(old), view.into(new), view.schema)
            parts = (found.added, found.modified, found.removed)
            seen[version] = typed_values.Comparison(*(self._ignored(part) for part in parts))
        return seen[version]

    def _pruned(self, merged: Object, managers: Managers, before: OwnedFields | None) -> Object:
        """Remove the fields that this manager applied before and no longer does."""
        if before is None or not before.fields:
            return merged
        view = self._view(before.version)
        complete = view.into(merged)
        pruned = (
            typed_values.remove(
                complete, field_sets.named_as_members(before.fields, view.schema), view.schema
            )
            or {}
        )
        pruned = self._with_owned(complete, pruned, managers)
        pruned = _with_dangling(view.into(complete), view.into(pruned), before.fields, view.schema)
        return self._view(self._version).into(pruned)

    def _with_owned(self, merged: Object, pruned: Object, managers: Managers) -> Object:
        """Restore the fields that other managers own."""
        by_version: dict[str, Node] = {}
        for what in managers.values():
            if self._views(what.version) is not None:
                so_far = by_version.get(what.version, {})
                by_version[what.version] = field_sets.union(so_far, what.fields)
        for version, owned in by_version.items():
            view = self._view(version)
            complete, rest = view.into(merged), view.into(pruned)
            have = field_sets.named_as_members(
                typed_values.fields_of(complete, view.schema), view.schema
            )
            keep = field_sets.union(
                field_sets.named_as_members(typed_values.fields_of(rest, view.schema), view.schema),
                field_sets.named_as_members(owned, view.schema),
            )
            pruned = (
                typed_values.remove(complete, field_sets.difference(have, keep), view.schema) or {}
            )
            merged = complete
        return pruned


def _with_dangling(merged: Object, pruned: Object, last: Node, schema: MergeSchema) -> Object:
    """Restore fields that were removed only because their parent was."""
    have = field_sets.named_as_members(typed_values.fields_of(merged, schema), schema)
    left = field_sets.named_as_members(typed_values.fields_of(pruned, schema), schema)
    gone = field_sets.intersection(
        field_sets.difference(have, left), field_sets.named_as_members(last, schema)
    )
    found: Object = typed_values.remove(merged, gone, schema) or {}
    return found
