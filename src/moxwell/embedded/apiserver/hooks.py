"""
What the program around the store plugs in: admission, mutation and conversion, all in-process
and sync.

They run between reading an object and staging its successor, so nothing may come between: a hook
that waited would let another write in. Third-party webhooks are refused for the same reason.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moxwell.api.requests import UserInfo

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionAttributes:
    """One write under review; ``object`` is None for deletions, ``old`` for creations."""

    operation: str  # CREATE, UPDATE, DELETE
    group: str
    version: str
    plural: str
    kind: str
    namespace: str
    name: str
    subresource: str
    user: UserInfo
    dry_run: bool
    object: Object | None
    old: Object | None


AdmitHook = Callable[
    [AdmissionAttributes], Sequence[str]
]  # warnings; raises a MoxwellError to refuse
MutateHook = Callable[[AdmissionAttributes], Object]  # the object to store, changed or not
ConvertHook = Callable[[Object, str], Object]  # the object in another apiVersion of its group


def _admit_all(_: AdmissionAttributes) -> Sequence[str]:
    return ()


def _unchanged(review: AdmissionAttributes) -> Object:
    return review.object or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """All that is plugged in. Converters are by ``plural.group`` of the CRD."""

    admit: AdmitHook = _admit_all
    mutate: MutateHook = _unchanged
    converters: Mapping[str, ConvertHook] = field(default_factory=dict)
