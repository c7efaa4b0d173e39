"""Why a node pool cannot work, field by field: what Karpenter finds at run time, and more. Pure."""

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any

from moxwell.api.karpenter.fields import NodeClaimTaint
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.kinds import as_dict
from moxwell.api.selectors import InvalidSelector, check_label_key, check_label_value
from moxwell.controllers.karpenter.state.pools import label_rules
from moxwell.errors import Invalid, MoxwellError
from moxwell.scheduling.disruption.cron import cron_schedule
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.packing.pod_parsing import pool_requirements
from moxwell.scheduling.packing.pod_validation import expression_refusals
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.scheduling.resource_lists import offered, quantity_text
from moxwell.scheduling.well_known_labels import NODE_POOL

_TEMPLATE = "spec.template.spec"


def validation_errors(pool: NodePool, types: Iterable[InstanceType] = ()) -> tuple[str, ...]:
    """What is wrong with a pool, each with its field."""
    return (
        *_labels(pool),
        *_taints(pool),
        *_requirements(pool),
        *_budgets(pool),
        *_limits(pool, tuple(types)),
    )


def _labels(pool: NodePool) -> Iterator[str]:
    rules = label_rules()
    for key, value in sorted(pool.spec.template.metadata.labels.items()):
        field = f"spec.template.metadata.labels[{key}]"
        if key == NODE_POOL:
            yield f"{field}: the label is restricted"
        elif refusal := rules.refusal(key):
            yield f"{field}: {refusal}"
        yield from _names(field, key, value)


def _names(field: str, key: str, value: str) -> Iterator[str]:
    try:
        check_label_key(key)
        check_label_value(value)
    except InvalidSelector as error:
        yield f"{field}: {error}"


def _taints(pool: NodePool) -> Iterator[str]:
    given = pool.spec.template.spec
    seen: set[tuple[str, str]] = set()
    for field, taints in (("taints", given.taints), ("startupTaints", given.startup_taints)):
        for index, taint in enumerate(taints):
            yield from _taint(f"{_TEMPLATE}.{field}[{index}]", taint, seen)


def _taint(field: str, taint: NodeClaimTaint, seen: set[tuple[str, str]]) -> Iterator[str]:
    if (taint.key, taint.effect) in seen:
        yield f"{field}: duplicate taint {taint.key}:{taint.effect}"
    seen.add((taint.key, taint.effect))
    yield from _names(field, taint.key, taint.value or "")


def _requirements(pool: NodePool) -> Iterator[str]:
    listed: list[dict[str, Any]] = as_dict(pool)["spec"]["template"]["spec"]["requirements"]
    for index, each in enumerate(listed):
        field = f"{_TEMPLATE}.requirements[{index}]"
        if each["key"] == NODE_POOL:
            yield f"{field}: the label {NODE_POOL} is restricted"
        yield from (f"{field}: {refusal}" for refusal in expression_refusals(each, label_rules()))
    try:
        parsed = pool_requirements(listed)
    except Invalid as error:
        yield f"{_TEMPLATE}.requirements: {error}"
        return
    yield from _contradictions(parsed)


def _contradictions(parsed: tuple[LabelRequirement, ...]) -> Iterator[str]:
    for (i, a), (j, b) in combinations(enumerate(parsed), 2):
        if a.key == b.key and a.conflicts(b):
            field = f"{_TEMPLATE}.requirements[{j}]"
            yield f"{field}: no value of {a.key} satisfies this and requirements[{i}]"


def _budgets(pool: NodePool) -> Iterator[str]:
    for index, budget in enumerate(pool.spec.disruption.budgets):
        if budget.schedule is None:
            continue
        try:
            cron_schedule(budget.schedule)
        except (MoxwellError, ValueError) as error:
            yield (
                f"spec.disruption.budgets[{index}].schedule: {budget.schedule!r} is not a cron "
                f"schedule ({error}); the budget allows no disruption until it is corrected"
            )


def _limits(pool: NodePool, types: tuple[InstanceType, ...]) -> Iterator[str]:
    """Limits that are not zero, which pauses a pool, but too low for every instance type."""
    for name, limit in sorted(offered(pool.spec.limits).items()):
        sizes = [t.capacity[name] for t in types if name in t.capacity]
        if sizes and 0 < limit < min(sizes):
            shown, least = quantity_text(name, limit), quantity_text(name, min(sizes))
            yield f"spec.limits.{name}: {shown} is less than one node of any type ({least})"
