"""
Annotations of node classes and of the ProxmoxCluster that decide how nodes are made.

A CRD cannot have rules for annotations: the admission of Moxwell's API servers and webhooks calls
``annotation_errors``, and the chart has the same patterns in a ValidatingAdmissionPolicy. A value
that is stored already is no reason to refuse another change.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from moxwell.api.field_errors import FieldError

WARM_POOL = "moxwell.dev/warm-pool"  # of ProxmoxCluster and ProxmoxNodeClass: guests per host
MOST_PER_HOST = 20  # warm guests
NODE_POLICY = "moxwell.dev/node-policy"  # of ProxmoxCluster and ProxmoxNodeClass
HUGE_PAGES = "moxwell.dev/huge-pages"  # of ProxmoxNodeClass: MiB per page
FITTED_SIZES = "moxwell.dev/fitted-sizes"  # of ProxmoxCluster
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AnnotationRule:
    """Which values an annotation may have."""

    annotation: str
    pattern: str
    advice: str


_POOL = AnnotationRule(
    WARM_POOL, r"\s*(0?[0-9]|1[0-9]|20)\s*", f"set a number from 0 to {MOST_PER_HOST}"
)
_POLICY = AnnotationRule(NODE_POLICY, "(simple|numa|static)?", "set simple, numa or static")
_PAGES = AnnotationRule(HUGE_PAGES, "(2|1024)?", "set 2 or 1024 (MiB per page)")
_SIZES = AnnotationRule(FITTED_SIZES, "(true|false|fine)?", "set true, false or fine")
RULES: Mapping[tuple[str, str], tuple[AnnotationRule, ...]] = MappingProxyType(
    {
        ("karpenter.proxmox.sinextra.dev", "ProxmoxNodeClass"): (_POOL, _POLICY, _PAGES),
        ("infrastructure.cluster.x-k8s.io", "ProxmoxCluster"): (_POOL, _POLICY, _SIZES),
    }
)  # by name: the process of a tenant does not load these kinds


def annotation_errors(
    group: str, kind: str, new: Json | None, old: Json | None
) -> tuple[FieldError, ...]:
    """The annotations that a write sets to a value they cannot have."""
    if new is None or (new.get("metadata") or {}).get("deletionTimestamp"):
        return ()
    return tuple(_errors(RULES.get((group, kind), ()), _annotations(new), _annotations(old or {})))


def _errors(
    rules: tuple[AnnotationRule, ...], new: Mapping[str, str], old: Mapping[str, str]
) -> Iterator[FieldError]:
    for rule in rules:
        text = new.get(rule.annotation)
        if text is None or text == old.get(rule.annotation):
            continue
        if not re.fullmatch(rule.pattern, text, re.ASCII):
            path = f"metadata.annotations[{rule.annotation}]"
            yield FieldError(path, f"{text[:20]!r} is no value of it; {rule.advice}")


def _annotations(obj: Json) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("annotations") or {}
