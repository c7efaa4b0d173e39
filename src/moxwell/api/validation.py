"""
Evaluates the validation rules of a kind in Python, equivalent to the CEL of its CRD.

Transition rules apply only where both old and new value exist. List elements are matched with their
previous value by ``name``; an element without a match has no previous value.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from moxwell.api.kinds import Object, ValidationRule


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated rule and the path of the value."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def violations(obj: Object, old: Object | None = None) -> tuple[Violation, ...]:
    """Return all violations of an object, given its previous state on update."""
    return tuple(_walk(obj, old, ""))


def _walk(value: Any, old: Any, path: str) -> Iterator[Violation]:
    if isinstance(value, Struct):
        yield from _violated(value, old, path)
        for name, shown in zip(
            value.__struct_fields__, value.__struct_encode_fields__, strict=True
        ):
            previous = getattr(old, name, None) if type(old) is type(value) else None
            yield from _walk(getattr(value, name), previous, f"{path}.{shown}" if path else shown)
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from _walk(item, _previous(item, old), f"{path}[{index}]")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            previous = old.get(key) if isinstance(old, Mapping) else None
            yield from _walk(item, previous, f"{path}[{key}]")


def _violated(value: Struct, old: Any, path: str) -> Iterator[Violation]:
    rules: tuple[ValidationRule, ...] = getattr(type(value), "rules", ())
    for rule in rules:
        if rule.transition and old is None:
            continue
        if not rule.check(value, old):
            yield Violation(path + rule.field_path, rule.message)


def _previous(item: Any, old: Any) -> Any:
    name = getattr(item, "name", None)
    if not isinstance(old, tuple | list) or not isinstance(name, str):
        return None
    return next((previous for previous in old if getattr(previous, "name", None) == name), None)
