"""Finds the resource of a manifest or of a word such as ``pods`` or ``po``."""

from collections.abc import Sequence
from typing import Any

from moxwell.api.field_errors import hint
from moxwell.api.kinds import Resource
from moxwell.errors import Missing
from moxwell.kube.discovery import ServedKind


class KindUnknown(Missing):
    """The API serves no such kind."""

    reason = "UnknownKind"


def of_object(served: Sequence[ServedKind], doc: dict[str, Any]) -> Resource:
    """The resource of a manifest."""
    for found in served:
        if (found.resource.api_version, found.resource.kind) == (doc["apiVersion"], doc["kind"]):
            return found.resource
    version, kind = str(doc["apiVersion"]), str(doc["kind"])
    there = sorted({f.resource.api_version for f in served if f.resource.kind == kind})
    if there:
        raise KindUnknown(f"{version} {kind} is not served by this API, but {', '.join(there)} is")
    group = {f.resource.kind for f in served if f.resource.api_version == version}
    near = hint(kind, group or {f.resource.kind for f in served})
    raise KindUnknown(f"{version} {kind} is not served by this API{near}")


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
