"""
The rules of a kind, checked in Python: the same that its CRD states as CEL.

In: an object and, on an update, its former self; out: every broken rule with its path. Transition
rules are checked only where both old and new are there, as Kubernetes does. Elements of lists are
paired with their former selves by name if they have one; an unpaired element has no past.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct, structs

from moxwell.api.kinds import Object, ValidationRule


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule and where."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def violations(obj: Object, old: Object | None = None) -> tuple[Violation, ...]:
    """Every rule this object breaks."""
    return tuple(_walk(obj, old, ""))


def _walk(value: Any, old: Any, path: str) -> Iterator[Violation]:
    if isinstance(value, Struct):
        yield from _broken(value, old, path)
        for field in structs.fields(value):
            inner = getattr(value, field.name)
            was = getattr(old, field.name, None) if type(old) is type(value) else None
            yield from _walk(
                inner, was, f"{path}.{field.encode_name}" if path else field.encode_name
            )
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from _walk(item, _former(item, old), f"{path}[{index}]")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            was = old.get(key) if isinstance(old, Mapping) else None
            yield from _walk(item, was, f"{path}[{key}]")


def _broken(value: Struct, old: Any, path: str) -> Iterator[Violation]:
    rules: tuple[ValidationRule, ...] = getattr(type(value), "rules", ())
    for rule in rules:
        if rule.transition and old is None:
            continue
        if not rule.check(value, old):
            yield Violation(path + rule.field_path, rule.message)


def _former(item: Any, old: Any) -> Any:
    name = getattr(item, "name", None)
    if not isinstance(old, tuple | list) or not isinstance(name, str):
        return None
    return next((was for was in old if getattr(was, "name", None) == name), None)
