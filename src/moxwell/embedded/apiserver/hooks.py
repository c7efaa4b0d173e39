"""
Hooks of the embedding program: admission, mutation and conversion, in-process and synchronous.

They run between reading an object and staging its successor, so they must not await: another write
could intervene. External webhooks are unsupported for the same reason.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moxwell.api.requests import UserInfo

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionAttributes:
    """The attributes of an admission decision; ``object`` is None on delete, ``old`` on create."""

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
]  # returns warnings; raises a MoxwellError to reject
MutateHook = Callable[[AdmissionAttributes], Object]  # returns the object to store
ConvertHook = Callable[[Object, str], Object]  # the object in another apiVersion


def _admit_all(_: AdmissionAttributes) -> Sequence[str]:
    return ()


def _unchanged(review: AdmissionAttributes) -> Object:
    return review.object or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The hooks; converters are keyed by ``plural.group`` of the CRD."""

    admit: AdmitHook = _admit_all
    mutate: MutateHook = _unchanged
    converters: Mapping[str, ConvertHook] = field(default_factory=dict)
