"""Finds the resource of a word such as ``pods`` or ``po``."""

from collections.abc import Sequence
from typing import Any

from moxwell.api.field_errors import hint
from moxwell.api.kinds import Resource
from moxwell.errors import Missing
from moxwell.kube.client import Kube
from moxwell.kube.discovery import ServedKind
from moxwell.kube.served_kinds import KindUnknown


def by_name(served: Sequence[ServedKind], word: str) -> Resource:
    """The resource of a plural, singular, kind or short name, with or without a group."""
    wanted, _, group = word.lower().partition(".")
    for found in served:
        resource = found.resource
        names = {resource.plural, found.singular, resource.kind.lower(), *found.short}
        if found.preferred and wanted in names and group in ("", resource.group):
            return resource
    near = hint(wanted, {name for f in served for name in (f.resource.plural, f.singular)})
    raise KindUnknown(
        f"the API serves no kind {word!r}{near}: see `moxwell get customresourcedefinitions`"
    )


async def get(kube: Kube, resource: Resource, name: str, namespace: str) -> dict[str, Any]:
    """One object; the error for a missing one names the namespaces of its namesakes."""
    if not resource.namespaced:
        return await kube.get(resource, name)
    try:
        return await kube.get(resource, name, namespace)
    except Missing as error:
        every = (await kube.list(resource)).items
        spaces = [str(o["metadata"]["namespace"]) for o in every if o["metadata"]["name"] == name]
        if not spaces:
            raise
        there = f"there is one in {', '.join(sorted(spaces))}: add -n {min(spaces)}"
        text = f"there is no {resource.kind} {name} in {namespace}; {there}"
        raise Missing(text) from error
