"""
Estimates the costs of all rules of a schema, and refuses schemas above kube-apiserver's limits.

The cost of a rule is multiplied by the number of values it can be evaluated for: the product of
the limits of the lists and maps around it, or, if one has no limit, what fits into a request.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from moxwell.embedded.apiserver.cel import estimation, parser, sizes
from moxwell.embedded.apiserver.status_errors import ErrorCause

Schema = Mapping[str, Any]
MAX_RULE_COST = 10_000_000
MAX_SCHEMA_COST = 100_000_000
_ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays,"
    " maps, and strings are declared)"
)
_WORDS = {"rule": "rule", "messageExpression": "messageExpression"}


@dataclass(frozen=True, slots=True)
class RuleCost:
    """The estimated cost of one expression, and its field."""

    field: str
    word: str
    cost: int


def causes(schema: Schema, at: str) -> list[ErrorCause]:
    """Return the errors of rules whose estimated cost exceeds a limit."""
    found = list(_costs(schema, at, 1))
    wrong = [_too_costly(rule) for rule in found if rule.cost > MAX_RULE_COST]
    total = sum(rule.cost for rule in found)
    if total <= MAX_SCHEMA_COST:
        return wrong
    text = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3"
    most = sorted(found, key=lambda rule: -rule.cost)[:4]
    wrong += [_forbidden(rule.field, f"{text} schema") for rule in most if rule.cost]
    entire = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
    wrong.append(_forbidden(at, f"{entire} exceeds budget by {_factor(total, MAX_SCHEMA_COST)}"))
    return wrong


def _too_costly(rule: RuleCost) -> ErrorCause:
    text = f"estimated {rule.word} cost exceeds budget by {_factor(rule.cost, MAX_RULE_COST)}"
    return _forbidden(rule.field, text)


def _factor(cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:.1f}x"
    return f"factor of {shown} {_ADVICE}"


def _forbidden(field: str, text: str) -> ErrorCause:
    return ErrorCause("FieldValueForbidden", f"Forbidden: {text}", field)


def _costs(schema: Schema, at: str, values: int | None) -> Iterator[RuleCost]:
    """Yield the costs below a schema; ``values`` is None below a list or map without a limit."""
    rules = schema.get("x-kubernetes-validations") or ()
    if rules:
        size = sizes.from_schema(schema)
        count = sizes.MAX_REQUEST // (sizes.smallest(schema) + 1) if values is None else values
        for index, rule in enumerate(rules):
            for word in _WORDS:
                if rule.get(word):
                    field = f"{at}.x-kubernetes-validations[{index}].{word}"
                    yield RuleCost(field, word, count * _cost(rule[word], size))
    for name, inner in (schema.get("properties") or {}).items():
        yield from _costs(inner, f"{at}.properties[{name}]", values)
    for word, limit in (("additionalProperties", "maxProperties"), ("items", "maxItems")):
        if isinstance(inner := schema.get(word), Mapping):
            most = schema.get(limit)
            below = None if values is None or most is None else values * int(most)
            yield from _costs(inner, f"{at}.{word}", below)


def _cost(text: str, size: sizes.SizeEstimate) -> int:
    """Estimate one expression; one that does not compile is reported elsewhere."""
    try:
        node = parser.parse(text.strip())
    except parser.CelSyntaxError:
        return 0
    return estimation.estimate(node, {"self": size, "oldSelf": size})[0]
