"""
Compiles structural schemas to validation functions with kube-apiserver's messages.

On update the old value is passed along: unchanged values are not rejected again (ratcheting), and
transition rules get it as ``oldSelf``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moxwell.embedded.apiserver import regex
from moxwell.embedded.apiserver.cel.cost import PER_OBJECT, CostBudget, CostExceeded
from moxwell.embedded.apiserver.crd import composition, formats
from moxwell.embedded.apiserver.crd.composition import MISSING, NOWHERE, Check, Test, shown, wrong
from moxwell.embedded.apiserver.crd.rules import Rules, compile_rules
from moxwell.embedded.apiserver.object_cache import encode
from moxwell.embedded.apiserver.status_errors import ErrorCause

Schema = Mapping[str, Any]


class ValidationErrors(list[ErrorCause]):
    """The errors found, and the rules to evaluate once the types are valid."""

    def __init__(self) -> None:
        super().__init__()
        self.later: list[tuple[Rules, Any, str, Any]] = []

    def ask_rules(self) -> None:
        """Evaluate the rules, unless type errors block them."""
        if not self.later:
            return
        if any(cause.reason in _BLOCKING for cause in self):
            text = (
                "Invalid value: null: some validation rules were not checked because the object was"
                " invalid; correct the existing errors to complete validation"
            )
            self.append(ErrorCause("FieldValueInvalid", text, NOWHERE))
            return
        budget = CostBudget(PER_OBJECT)
        for rules, value, path, old in self.later:
            try:
                rules(
                    value, path, self, None if old is MISSING else old, old is not MISSING, budget
                )
            except CostExceeded:
                return  # the last error says that the other rules are not run


_BLOCKING = frozenset(
    ["FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"]
)


def kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "string" if isinstance(value, str) else "object" if isinstance(value, dict) else "array"


def validator(schema: Schema, *, root: bool = False) -> Check:
    """Compile the validation of a schema."""
    tests = _tests(schema)
    below = _below(schema)
    rules = compile_rules(schema, root=root)
    is_right = _type_test(schema)
    nullable = bool(schema.get("nullable"))

    def check(value: Any, path: str, found: list[ErrorCause], old: Any) -> None:
        if value is None and nullable:
            return
        if old is not MISSING and old == value:
            return
        problem = is_right(value)
        if problem:
            kind = kind_of(value)
            text = f'{path} in body must be of type {problem}: "{kind}"'
            found.append(wrong(path, kind, text, "FieldValueTypeInvalid"))
            if kind == "number":
                found.append(_checked(path, "(default format)"))
            return
        for test in tests:
            test(value, path, found)
        for descend in below:
            descend(value, path, found, old)
        if rules is not None and isinstance(found, ValidationErrors):
            found.later.append((rules, value, path, old))

    return check


def _type_test(schema: Schema) -> Callable[[Any], str]:
    """Return the empty string if the type is right, else the expected type."""
    if schema.get("x-kubernetes-int-or-string"):
        return lambda v: "" if kind_of(v) in ("integer", "string") else "integer,string"
    wanted = schema.get("type", "")
    match wanted:
        case "string":
            return lambda v: "" if v.__class__ is str else "string"
        case "boolean":
            return lambda v: "" if v.__class__ is bool else "boolean"
        case "integer":
            return lambda v: "" if _is_integer(v) else "integer"
        case "number":
            return lambda v: "" if kind_of(v) in ("integer", "number") else "number"
        case "object":
            return lambda v: "" if v.__class__ is dict else "object"
        case "array":
            return lambda v: "" if v.__class__ is list else "array"
    return lambda v: ""


def _is_integer(value: Any) -> bool:
    return value.__class__ is int or (isinstance(value, float) and value.is_integer())


def _tests(schema: Schema) -> list[Test]:
    found: list[Test] = []
    for keyword, make in _MAKERS.items():
        if keyword in schema:
            found.append(make(schema[keyword], schema))
    if schema.get("x-kubernetes-list-type") in ("set", "map"):
        found.append(_unique(tuple(schema.get("x-kubernetes-list-map-keys", ()))))
    if schema.get("x-kubernetes-embedded-resource"):
        found.append(_embedded)
    for keyword, tester in (
        ("allOf", composition.all_of),
        ("anyOf", composition.any_of),
        ("oneOf", composition.one_of),
    ):
        if keyword in schema and not schema.get("x-kubernetes-int-or-string"):
            found.append(tester([validator(subresource) for subresource in schema[keyword]]))
    if "not" in schema:
        found.append(composition.none_of(validator(schema["not"])))
    return found


def _enum(allowed: Any, schema: Schema) -> Test:
    listed = ", ".join(encode(a).decode() for a in allowed)

    def test(value: Any, path: str, found: list[ErrorCause]) -> None:
        if value not in allowed:
            text = f"Unsupported value: {shown(value)}: supported values: {listed}"
            found.append(ErrorCause("FieldValueNotSupported", text, path))

    return test


def _bound(
    word: str, holds: Callable[[Any, Any], bool], exclusive_key: str
) -> Callable[[Any, Schema], Test]:
    def make(limit: Any, schema: Schema) -> Test:
        exclusive = bool(schema.get(exclusive_key))
        text = f"{word} {shown(limit)}" if exclusive else f"{word} or equal to {shown(limit)}"

        def test(value: Any, path: str, found: list[ErrorCause]) -> None:
            if isinstance(value, str):
                return
            if not holds(value, limit) or (exclusive and value == limit):
                found.append(wrong(path, value, f"{path} in body should be {text}"))

        return test

    return make


def _checked(path: str, how: str) -> ErrorCause:
    return wrong(NOWHERE, "", f"Checked value must be of type integer {how} in {path}")


def _multiple(of: Any, schema: Schema) -> Test:
    def test(value: Any, path: str, found: list[ErrorCause]) -> None:
        if value <= 0:  # kube-apiserver divides in this order
            text = f"factor MultipleOf declared for {path} must be positive: {shown(value)}"
            found.append(wrong(path, value, text))
        elif value % of:
            found.append(wrong(path, value, f"{path} in body should be a multiple of {shown(of)}"))

    return test


def _max_length(limit: Any, schema: Schema) -> Test:
    def test(value: Any, path: str, found: list[ErrorCause]) -> None:
        if isinstance(value, str) and len(value) > limit:
            text = f"Too long: may not be more than {limit} bytes"
            found.append(ErrorCause("FieldValueTooLong", text, path))

    return test


def _min_length(limit: Any, schema: Schema) -> Test:
    def test(value: Any, path: str, found: list[ErrorCause]) -> None:
        if isinstance(value, str) and len(value) < limit:
            text = f"{path} in body should be at least {limit} chars long"
            found.append(wrong(path, value, text))

    return test


def _too_many(limit: Any, schema: Schema) -> Test:
    def test(value: Any, path: str, found: list[ErrorCause]) -> None:
        if len(value) > limit:
            items = "item" if limit == 1 else "items"
            text = f"Too many: {len(value)}: must have at most {limit} {items}"
            found.append(ErrorCause("FieldValueTooMany", text, path))

    return test


def _too_few(word: str) -> Callable[[Any, Schema], Test]:
    def make(limit: Any, schema: Schema) -> Test:
        def test(value: Any, path: str, found: list[ErrorCause]) -> None:
            if len(value) < limit:
                text = f"{path} in body should have at least {limit} {word}"
                found.append(wrong(path, len(value), text))

        return test

    return make


def _pattern(text: Any, schema: Schema) -> Test:
    pattern = regex.compile_pattern(text)

    def test(value: Any, path: str, found: list[ErrorCause]) -> None:
        if isinstance(value, str) and not pattern.matches(value):
            found.append(wrong(path, value, f"{path} in body should match '{text}'"))

    return test


def _required(names: Any, schema: Schema) -> Test:
    def test(value: Any, path: str, found: list[ErrorCause]) -> None:
        for name in names:
            if name not in value:
                at = f"{path}.{name}" if path else name
                found.append(ErrorCause("FieldValueRequired", "Required value", at))

    return test


_RANGES = {"int32": 2**31, "int64": 2**63}


def _format(name: Any, schema: Schema) -> Test:
    limit = _RANGES.get(name) if schema.get("type") == "integer" else None
    if limit is not None:
        return _range(name, limit)
    is_right = formats.FORMATS.get(name)

    def test(value: Any, path: str, found: list[ErrorCause]) -> None:
        if is_right is not None and isinstance(value, str) and not is_right(value):
            text = f"{path} in body must be of type {name}: {shown(value)}"
            found.append(wrong(path, value, text, "FieldValueTypeInvalid"))

    return test


def _range(name: str, limit: int) -> Test:
    def test(value: Any, path: str, found: list[ErrorCause]) -> None:
        if not -limit <= value < limit:
            found.append(_checked(path, f"with format {name}"))

    return test


_MAKERS: Mapping[str, Callable[[Any, Schema], Test]] = {
    "required": _required,
    "enum": _enum,
    "multipleOf": _multiple,
    "minimum": _bound("greater than", lambda v, limit: v >= limit, "exclusiveMinimum"),
    "maximum": _bound("less than", lambda v, limit: v <= limit, "exclusiveMaximum"),
    "maxLength": _max_length,
    "minLength": _min_length,
    "pattern": _pattern,
    "maxItems": _too_many,
    "minItems": _too_few("items"),
    "maxProperties": _too_many,
    "minProperties": _too_few("properties"),
    "format": _format,
}


def _unique(keys: Sequence[str]) -> Test:
    def test(value: Any, path: str, found: list[ErrorCause]) -> None:
        seen = set()
        for at, item in enumerate(value):
            named = (
                {k: item.get(k) for k in keys if k in item}
                if keys and isinstance(item, dict)
                else item
            )
            text = encode(named)
            if text in seen:
                duplicate = f"Duplicate value: {text.decode()}"
                found.append(ErrorCause("FieldValueDuplicate", duplicate, f"{path}[{at}]"))
            seen.add(text)

    return test


def _embedded(value: Any, path: str, found: list[ErrorCause]) -> None:
    for name in ("apiVersion", "kind"):
        if not value.get(name):
            found.append(ErrorCause("FieldValueRequired", "Required value", f"{path}.{name}"))


def _below(schema: Schema) -> list[Check]:
    found: list[Check] = []
    if properties := schema.get("properties"):
        found.append(
            _members({key: validator(subresource) for key, subresource in properties.items()})
        )
    if isinstance(rest := schema.get("additionalProperties"), Mapping):
        found.append(_values(validator(rest)))
    if items := schema.get("items"):
        keys = schema.get("x-kubernetes-list-map-keys", ())
        found.append(_items(validator(items), tuple(keys)))
    return found


def _members(checks: Mapping[str, Check]) -> Check:
    def check(value: Any, path: str, found: list[ErrorCause], old: Any) -> None:
        if value.__class__ is not dict:
            return
        before = old if isinstance(old, dict) else {}
        for key, item in value.items():
            inner = checks.get(key)
            if inner is not None:
                inner(item, f"{path}.{key}" if path else key, found, before.get(key, MISSING))

    return check


def _values(inner: Check) -> Check:
    def check(value: Any, path: str, found: list[ErrorCause], old: Any) -> None:
        if value.__class__ is not dict:
            return
        before = old if isinstance(old, dict) else {}
        for key, item in value.items():
            inner(item, f"{path}.{key}", found, before.get(key, MISSING))

    return check


def _items(inner: Check, keys: tuple[str, ...]) -> Check:
    def named(item: Any) -> Any:
        return tuple(str(item.get(k)) for k in keys) if isinstance(item, dict) else None

    def check(value: Any, path: str, found: list[ErrorCause], old: Any) -> None:
        if value.__class__ is not list:
            return
        before = {named(i): i for i in old} if keys and isinstance(old, list) else {}
        for at, item in enumerate(value):
            inner(
                item,
                f"{path}[{at}]",
                found,
                before.get(named(item), MISSING) if before else MISSING,
            )

    return check
