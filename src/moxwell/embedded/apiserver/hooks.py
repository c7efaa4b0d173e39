"""
What the program around the store plugs in: admission, mutation and conversion, all in-process
and sync.

They run between reading an object and staging its successor, so nothing may come between: a hook
that waited would let another write in. Third-party webhooks are refused for the same reason.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moxwell.api.requests import User

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """One write under review; ``object`` is None for deletions, ``old`` for creations."""

    operation: str  # CREATE, UPDATE, DELETE
    group: str
    version: str
    plural: str
    kind: str
    namespace: str
    name: str
    subresource: str
    user: User
    dry_run: bool
    object: Object | None
    old: Object | None


Admit = Callable[[Review], Sequence[str]]  # warnings; raises a MoxwellError to refuse
Mutate = Callable[[Review], Object]  # the object to store, changed or not
Convert = Callable[[Object, str], Object]  # the object in another apiVersion of its group


def _admit_all(_: Review) -> Sequence[str]:
    return ()


def _unchanged(review: Review) -> Object:
    return review.object or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """All that is plugged in. Converters are by ``plural.group`` of the CRD."""

    admit: Admit = _admit_all
    mutate: Mutate = _unchanged
    converters: Mapping[str, Convert] = field(default_factory=dict)
