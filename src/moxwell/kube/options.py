"""Options of list, watch, patch and delete calls of :class:`moxwell.kube.client.Kube`."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal, TypedDict

Terms = str | Mapping[str, str]


class Listing(TypedDict, total=False):
    """Selectors as text or equalities, page size, resource version."""

    labels: Terms
    fields: Terms
    limit: int
    resource_version: str


class Watching(TypedDict, total=False):
    """Selectors, resource version, initial events, timeout."""

    labels: Terms
    fields: Terms
    resource_version: str
    initial: bool
    lasting: timedelta


class Patching(TypedDict, total=False):
    """Subresource and dry run."""

    subresource: str
    dry_run: bool


class Deleting(TypedDict, total=False):
    """Propagation policy, grace period and dry run."""

    propagation: Literal["Background", "Foreground", "Orphan"]
    grace: int
    dry_run: bool
