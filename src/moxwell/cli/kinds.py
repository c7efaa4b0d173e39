"""Finds the resource of a manifest or of a word such as ``pods`` or ``po``."""

from collections.abc import Sequence
from typing import Any

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
    raise KindUnknown(f"{doc['apiVersion']} {doc['kind']} is not served by this API")


def by_name(served: Sequence[ServedKind], word: str) -> Resource:
    """The resource of a plural, singular, kind or short name, with or without a group."""
    wanted, _, group = word.lower().partition(".")
    for found in served:
        resource = found.resource
        names = {resource.plural, found.singular, resource.kind.lower(), *found.short}
        if found.preferred and wanted in names and group in ("", resource.group):
            return resource
    raise KindUnknown(
        f"the API serves no kind {word!r}: see `moxwell get customresourcedefinitions`"
    )
