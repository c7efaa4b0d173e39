"""Matches and validates LabelSelectors in specs."""

from collections.abc import Mapping
from typing import Any

from moxwell.embedded.apiserver.builtin.field_errors import Object, invalid, required
from moxwell.embedded.apiserver.metadata import label_causes
from moxwell.embedded.apiserver.status_errors import ErrorCause

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def matches(selector: Object, labels: Mapping[str, str]) -> bool:
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(_holds(term, labels) for term in selector.get("matchExpressions") or ())


def _holds(term: Object, labels: Mapping[str, str]) -> bool:
    key, values = term.get("key", ""), term.get("values") or ()
    match term.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return key not in labels or labels[key] not in values
        case "Exists":
            return key in labels
    return key not in labels


def causes(selector: Any, at: str) -> list[ErrorCause]:
    found = label_causes((selector or {}).get("matchLabels"), f"{at}.matchLabels")
    for index, term in enumerate((selector or {}).get("matchExpressions") or ()):
        where, operator = f"{at}.matchExpressions[{index}]", term.get("operator")
        if operator not in _OPERATORS:
            found.append(invalid(f"{where}.operator", operator, "not a valid selector operator"))
        elif operator in ("In", "NotIn") and not term.get("values"):
            why = "must be specified when `operator` is 'In' or 'NotIn'"
            found.append(required(f"{where}.values", why))
    return found


def is_empty(selector: Any) -> bool:
    return not selector or not (selector.get("matchLabels") or selector.get("matchExpressions"))
