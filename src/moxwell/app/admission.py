"""
Admission and conversion of our kinds, for both rims: the embedded API's hooks and the webhooks.

The rules themselves are pure functions of :mod:`moxwell.api`; here an object is only brought into
the hub's form first, whatever version it was written in.
"""

from typing import Any

from moxwell.api import conversion, registry
from moxwell.api.infra import admission
from moxwell.api.kinds import Object
from moxwell.errors import Invalid, Unsupported

Json = dict[str, Any]


def convert(obj: Json, api_version: str) -> Json:
    """The same object in another apiVersion of its group."""
    group = api_version.rpartition("/")[0]
    family = registry.find_family(group, str(obj.get("kind", "")))
    if family is None:
        raise Unsupported(f"{obj.get('kind')}.{group} has one version only")
    made: Json = family.convert(obj, api_version.rpartition("/")[2])
    return made


def refuse(group: str, kind: str, new: Json | None, old: Json | None, *, dry_run: bool) -> None:
    """
    Raise what is wrong with a write, as sentences a person can act on.

    What was let in once stays changeable in its metadata: a rule that came later must not keep a
    finalizer on an object that is to go.
    """
    hub = _hub(group, kind)
    if hub is None or new is None or (new.get("metadata") or {}).get("deletionTimestamp"):
        return
    after, before = _as_hub(hub, new), None if old is None else _as_hub(hub, old)
    if before is not None and before.get("spec") == after.get("spec"):
        return
    known = None if before is None else conversion.read(hub, before)
    if said := admission.refusals(conversion.read(hub, after), known, dry_run=dry_run):
        raise Invalid("; ".join(said))


def _hub(group: str, name: str) -> type[Object] | None:
    stored = (k for k in registry.OURS if k.declared.storage)
    return next((k for k in stored if (k.resource.group, k.resource.kind) == (group, name)), None)


def _as_hub(kind: type[Object], tree: Json) -> Json:
    """The object in the hub's form, whatever version the user wrote."""
    family = registry.find_family(kind.resource.group, kind.resource.kind)
    return dict(family.convert(tree, kind.resource.version)) if family else tree
