"""How to list, watch, patch and delete: the named options of :class:`moxwell.kube.client.Kube`."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal, TypedDict

Terms = str | Mapping[str, str]


class Listing(TypedDict, total=False):
    """How to list: selectors as text or equalities, page size, from which version."""

    labels: Terms
    fields: Terms
    limit: int
    resource_version: str


class Watching(TypedDict, total=False):
    """How to watch: selectors, from which version, with initial events, for how long."""

    labels: Terms
    fields: Terms
    resource_version: str
    initial: bool
    lasting: timedelta


class Patching(TypedDict, total=False):
    """How to patch: the object or a subresource, for real or not."""

    subresource: str
    dry_run: bool


class Deleting(TypedDict, total=False):
    """How to delete."""

    propagation: Literal["Background", "Foreground", "Orphan"]
    grace: int
    dry_run: bool
