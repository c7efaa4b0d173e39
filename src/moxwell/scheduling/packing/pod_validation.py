"""
Rejects pods before scheduling, with the reason. Pure.

Karpenter refuses node selectors and required node terms that it cannot honor: restricted labels,
field selectors, malformed names, unknown operators, and pods that must not run on its nodes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from moxwell.api.selectors import InvalidSelector, check_label_key, check_label_value
from moxwell.scheduling.requirements import RequirementOperator, integer
from moxwell.scheduling.well_known_labels import (
    CAPACITY_TYPE,
    NODE_POOL,
    ON_DEMAND,
    RESERVED,
    SPOT,
    LabelRules,
    normalized,
)

Json = Mapping[str, Any]
_CAPACITY_TYPES = frozenset({ON_DEMAND, SPOT, RESERVED})
_BOUNDS = frozenset(
    {
        RequirementOperator.GT,
        RequirementOperator.LT,
        RequirementOperator.GTE,
        RequirementOperator.LTE,
    }
)
_LONGEST_NAME = 63
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_CHARACTERS = (
    "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character"
)
_NAME_REFUSAL = (
    f"name part must {_CHARACTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_REFUSAL = (
    f"a valid label must be an empty string or {_CHARACTERS} (e.g. 'MyValue',  or 'my_value',  or "
    "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
NOT_ON_KARPENTER_NODES = (
    "configured to not run on a Karpenter provisioned node "
    f"(requirement={NODE_POOL} {RequirementOperator.DOES_NOT_EXIST})"
)


def pod_refusal(pod: Json, rules: LabelRules) -> str:
    """Why a pod is not scheduled at all; empty if it may be."""
    return "; ".join(_refusals(pod.get("spec") or {}, rules))


def _refusals(spec: Json, rules: LabelRules) -> Iterator[str]:
    terms = _required_terms(spec)
    if _avoids_node_pools(spec, terms):
        yield NOT_ON_KARPENTER_NODES
    for key, value in sorted((spec.get("nodeSelector") or {}).items()):
        yield from expression_refusals(
            {"key": key, "operator": RequirementOperator.IN, "values": [value]}, rules
        )
    for term in terms:
        if term.get("matchFields") is not None:
            yield "node selector term with matchFields is not supported"
        for expression in term.get("matchExpressions") or ():
            yield from expression_refusals(expression, rules)


def _required_terms(spec: Json) -> list[Json]:
    node = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return list(required.get("nodeSelectorTerms") or ())


def _avoids_node_pools(spec: Json, terms: list[Json]) -> bool:
    """Whether the first required term or the heaviest preferred one forbids the pool label."""
    node = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    soft = node.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    preferred = sorted(soft, key=lambda t: -t["weight"])[:1]
    looked_at = [*terms[:1], *(t["preference"] for t in preferred)]
    return any(
        e["key"] == NODE_POOL and e["operator"] == RequirementOperator.DOES_NOT_EXIST
        for term in looked_at
        for e in term.get("matchExpressions") or ()
    )


def expression_refusals(expression: Json, rules: LabelRules) -> Iterator[str]:
    """Why an expression of a pod or NodePool is refused."""
    key, operator = normalized(expression["key"]), expression["operator"]
    values = list(expression.get("values") or ())
    least = expression.get("minValues")
    if operator not in set(RequirementOperator):
        known = " ".join(RequirementOperator)
        yield f"key {key} has an unsupported operator {operator} not in [{known}]"
    if refusal := rules.refusal(key):
        yield refusal
    if key == CAPACITY_TYPE and operator == RequirementOperator.IN:
        yield from _capacity_type_refusals(key, values, least)
    yield from _malformed(key, values)
    if operator == RequirementOperator.IN and not values:
        yield f"key {key} with operator {operator} must have a value defined"
    if operator == RequirementOperator.IN and least is not None and len(values) < least:
        yield (
            f"key {key} with operator {operator} must have at least minimum number of values "
            "defined in 'values' field"
        )
    if (
        operator in _BOUNDS
        and (len(values) != 1 or (integer(values[0]) or -1) < 0)
        and (values != ["0"])
    ):
        yield f"key {key} with operator {operator} must have a single positive integer value"


def _capacity_type_refusals(key: str, values: list[str], least: int | None) -> Iterator[str]:
    valid = [v for v in values if v in _CAPACITY_TYPES]
    shown, known = " ".join(values), sorted(_CAPACITY_TYPES)
    if not valid:
        among = " ".join(f"{v}:{{}}" for v in known)  # a set of Go
        yield (
            f"no valid values found in [{shown}] for {key}, expected one of: map[{among}], "
            f"got: [{shown}]"
        )
    elif least is not None and len(valid) < least:
        yield (
            f"not enough valid values found in [{shown}] for {key}, expected at least {least} "
            f"valid values from: [{' '.join(known)}], got: {len(valid)}"
        )


def _malformed(key: str, values: list[str]) -> Iterator[str]:
    try:
        check_label_key(key)
    except InvalidSelector as error:
        yield f"key {key} is not a qualified name, {_key_refusal(key) or error}"
    for value in values:
        try:
            check_label_value(value)
        except InvalidSelector as error:
            text = error if len(value) > _LONGEST_NAME else _VALUE_REFUSAL
            yield f"invalid value {value} for key {key}, {text}"


def _key_refusal(key: str) -> str:
    """Kubernetes' sentence about the characters of a name; empty if the name is not the cause."""
    name = key.rpartition("/")[2]
    return _NAME_REFUSAL if name and not _NAME.fullmatch(name) else ""
