"""Kinds by the words people use for them."""

from collections.abc import Sequence
from typing import Any

from moxwell.api.kinds import Resource
from moxwell.errors import Missing
from moxwell.kube.discovery import Served


class UnknownKind(Missing):
    """Nothing here is called that."""

    reason = "UnknownKind"


def of_object(served: Sequence[Served], doc: dict[str, Any]) -> Resource:
    """The resource of a manifest."""
    for found in served:
        if (found.resource.api_version, found.resource.kind) == (doc["apiVersion"], doc["kind"]):
            return found.resource
    raise UnknownKind(f"{doc['apiVersion']} {doc['kind']} is not served here")


def by_name(served: Sequence[Served], word: str) -> Resource:
    """As kubectl reads it: plural, singular, kind or short name, with or without a group."""
    wanted, _, group = word.lower().partition(".")
    for found in served:
        resource = found.resource
        names = {resource.plural, found.singular, resource.kind.lower(), *found.short}
        if found.preferred and wanted in names and group in ("", resource.group):
            return resource
    raise UnknownKind(f"there is no kind {word!r} here: `moxwell get customresourcedefinitions`")
