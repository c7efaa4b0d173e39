"""
Admission and conversion of our kinds, for both rims: the embedded API's hooks and the webhooks.

The rules themselves are pure functions of :mod:`moxwell.api`; here an object is only brought into
the hub's form first, whatever version it was written in.
"""

from typing import Any

import msgspec

from moxwell.api import registry
from moxwell.api.infra import admit
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
    """Raise what is wrong with a write, as sentences a person can act on."""
    hub = _hub(group, kind)
    after = _typed(hub, new) if hub is not None else None
    if hub is None or after is None:
        return
    if said := admit.refusals(after, _typed(hub, old), dry_run=dry_run):
        raise Invalid("; ".join(said))


def _hub(group: str, name: str) -> type[Object] | None:
    stored = (k for k in registry.OURS if k.declared.storage)
    return next((k for k in stored if (k.resource.group, k.resource.kind) == (group, name)), None)


def _typed(kind: type[Object], tree: Json | None) -> Object | None:
    """The object in the hub's form, whatever version the user wrote."""
    if tree is None:
        return None
    family = registry.find_family(kind.resource.group, kind.resource.kind)
    hub = family.convert(tree, kind.resource.version) if family else tree
    return msgspec.convert(hub, kind, strict=False)
