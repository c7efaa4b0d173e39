"""Finds the served resource of a manifest."""

from collections.abc import Iterable, Mapping
from typing import Any

from moxwell.api.field_errors import hint
from moxwell.api.kinds import Resource
from moxwell.errors import Missing
from moxwell.kube.discovery import ServedKind


class KindUnknown(Missing):
    """The API serves no such kind."""

    reason = "UnknownKind"


def of_object(served: Iterable[ServedKind], doc: Mapping[str, Any]) -> Resource:
    """The resource of a manifest; KindUnknown with the version or the kind that was meant."""
    version, kind = str(doc.get("apiVersion")), str(doc.get("kind"))
    served = tuple(served)
    for found in served:
        if (found.resource.api_version, found.resource.kind) == (version, kind):
            return found.resource
    there = sorted({f.resource.api_version for f in served if f.resource.kind == kind})
    if there:
        raise KindUnknown(f"{version} {kind} is not served by this API, but {', '.join(there)} is")
    group = {f.resource.kind for f in served if f.resource.api_version == version}
    near = hint(kind, group or {f.resource.kind for f in served})
    raise KindUnknown(f"{version} {kind} is not served by this API{near}")
