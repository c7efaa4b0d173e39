"""
Validation of CRDs: names, versions, structural schemas.

Messages match kube-apiserver's where users see them. Schemas are compiled once here, so that a CRD
with an unsupported pattern or rule is rejected and not found later by an object.
"""

import re
from collections.abc import Mapping
from typing import Any

from moxwell.embedded.apiserver import jsonpath, regex
from moxwell.embedded.apiserver.crd import composition, rule_costs, validation
from moxwell.embedded.apiserver.crd.rules import InvalidRule, compile_rules
from moxwell.embedded.apiserver.metadata import LABEL_1035_TEXT
from moxwell.embedded.apiserver.object_cache import encode
from moxwell.embedded.apiserver.status_errors import ErrorCause

Object = dict[str, Any]
_label = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?").fullmatch


def _required(field: str, why: str = "") -> ErrorCause:
    return ErrorCause(
        "FieldValueRequired", f"Required value: {why}" if why else "Required value", field
    )


def _invalid(field: str, value: Any, why: str) -> ErrorCause:
    return ErrorCause("FieldValueInvalid", f"Invalid value: {encode(value).decode()}: {why}", field)


def _forbidden(field: str, why: str) -> ErrorCause:
    return ErrorCause("FieldValueForbidden", f"Forbidden: {why}", field)


def check(new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
    """Validate a CRD."""
    if subresource == "status":
        return []
    spec = new.get("spec") or {}
    found = _names(new, spec)
    found += _versions(spec, (new.get("status") or {}).get("storedVersions"))
    found += _conversion(spec)
    if old is not None:
        found += _fixed(spec, old.get("spec") or {})
    return found


def _names(new: Object, spec: Object) -> list[ErrorCause]:
    names, group, found = spec.get("names") or {}, spec.get("group", ""), []
    name = new["metadata"].get("name", "")
    if name != f"{names.get('plural', '')}.{group}":
        found.append(_invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    if not group:
        found.append(_required("spec.group"))
    elif "." not in group:
        text = "should be a domain with at least one dot"
        found.append(_invalid("spec.group", group, text))
    for key in ("plural", "kind"):
        if not names.get(key):
            found.append(_required(f"spec.names.{key}"))
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        text = (
            f'Unsupported value: "{spec.get("scope", "")}": supported values: "Cluster",'
            ' "Namespaced"'
        )
        found.append(ErrorCause("FieldValueNotSupported", text, "spec.scope"))
    return found


_GO_VERSION = (
    ("Name", "name", ""), ("Served", "served", False), ("Storage", "storage", False),
    ("Deprecated", "deprecated", False), ("DeprecationWarning", "deprecationWarning", None),
    ("Schema", "", None), ("Subresources", "", None), ("AdditionalPrinterColumns", "", None),
    ("SelectableFields", "", None),
)  # fmt: skip


def _versions(spec: Object, stored: Any) -> list[ErrorCause]:
    versions, found = spec.get("versions") or [], []
    if not versions:
        return [
            _required("spec.versions", "must have exactly one version marked as storage version")
        ]
    for at, version in enumerate(versions):
        name = version.get("name", "")
        if not _label(name):
            found.append(_invalid(f"spec.versions[{at}].name", name, LABEL_1035_TEXT))
            if at == 0:
                found.append(_invalid("spec.version", name, LABEL_1035_TEXT))
        found += _version(version, at, alone=len(versions) == 1)
    marked = [v for v in versions if v.get("storage")]
    if len(marked) != 1:
        shown = [
            {go: v.get(key, empty) if key else None for go, key, empty in _GO_VERSION}
            for v in versions
        ]
        text = "must have exactly one version marked as storage version"
        found.append(_invalid("spec.versions", shown, text))
    if len(marked) > 1:
        text = f"must have the storage version {marked[-1]['name']}"
        found.append(_invalid("status.storedVersions", [marked[0]["name"]], text))
    if len(marked) == 0:
        found.append(
            _invalid(
                "status.storedVersions", stored or None, "must have at least one stored version"
            )
        )
    names = [v.get("name") for v in versions]
    if len(set(names)) != len(names):
        found.append(_invalid("spec.versions", names, "must contain unique version names"))
    return found


def _version(version: Object, at: int, *, alone: bool) -> list[ErrorCause]:
    field = f"spec.versions[{at}].schema.openAPIV3Schema"
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        return [_required(field)]
    place = "spec.validation.openAPIV3Schema" if alone else field
    found: list[ErrorCause] = []
    if schema.get("type") != "object":
        text = (
            "must be object at the root" if schema.get("type") else "must not be empty at the root"
        )
        where = f"{place}.type"
        found.append(
            _invalid(where, schema["type"], text) if schema.get("type") else _required(where, text)
        )
    _node(schema, place, found, root=True)
    if not found:
        _rules(schema, place, found, root=True)
        found += rule_costs.causes(schema, place)
        _defaults(schema, place, found)
    return found + _columns(version, at) + _scale(version, at)


def _columns(version: Object, at: int) -> list[ErrorCause]:
    found = []
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        field = f"spec.versions[{at}].additionalPrinterColumns[{index}]"
        try:
            jsonpath.compile(column.get("jsonPath", ""))
        except jsonpath.InvalidJsonPath as problem:
            found.append(_invalid(f"{field}.jsonPath", column.get("jsonPath"), str(problem)))
        kinds = ("integer", "number", "string", "boolean", "date")
        if column.get("type") not in kinds:
            text = "must be one of " + ",".join(sorted(kinds))
            found.append(_invalid(f"{field}.type", column.get("type", ""), text))
    return found


def _scale(version: Object, at: int) -> list[ErrorCause]:
    scale = (version.get("subresources") or {}).get("scale")
    if scale is None:
        return []
    field, found = f"spec.versions[{at}].subresources.scale", []
    for key, root in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        path = scale.get(key, "")
        if not path:
            found.append(_required(f"{field}.{key}"))
        elif not path.startswith(root):
            text = f"should be a json path under {root[:-1]}"
            found.append(_invalid(f"{field}.{key}", path, text))
    return found


def _node(
    schema: Mapping[str, Any], at: str, found: list[ErrorCause], *, root: bool = False
) -> None:
    """
    Validate that a schema is structural: every field has a type and compositions declare none.
    """
    if "$ref" in schema:
        found.append(_forbidden(f"{at}.$ref", "$ref is not supported"))
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        found.append(_forbidden(f"{at}.uniqueItems", text))
    untyped = not schema.get("type") and not root
    excused = schema.get("x-kubernetes-int-or-string") or schema.get(
        "x-kubernetes-preserve-unknown-fields"
    )
    if untyped and not excused:
        what = "object fields" if "properties[" in at.rsplit(".", 1)[-1] else "array items"
        found.append(_required(f"{at}.type", f"must not be empty for specified {what}"))
    if schema.get("properties") and schema.get("additionalProperties"):
        text = "additionalProperties and properties are mutual exclusive"
        found.append(_forbidden(f"{at}.additionalProperties", text))
    if schema.get("type") == "array" and not schema.get("items"):
        found.append(_required(f"{at}.items", "must be specified"))
    listed = schema.get("x-kubernetes-list-type")
    if listed == "map" and not schema.get("x-kubernetes-list-map-keys"):
        text = "must not be empty if x-kubernetes-list-type is map"
        found.append(_required(f"{at}.x-kubernetes-list-map-keys", text))
    _pattern(schema, at, found)
    _below(schema, at, found)


def _pattern(schema: Mapping[str, Any], at: str, found: list[ErrorCause]) -> None:
    if text := schema.get("pattern"):
        try:
            regex.compile_pattern(text)
        except regex.InvalidPattern as problem:
            why = f"must be a valid regular expression, but isn't: {problem}"
            found.append(_invalid(f"{at}.pattern", text, why))


def _below(schema: Mapping[str, Any], at: str, found: list[ErrorCause]) -> None:
    for name, inner in (schema.get("properties") or {}).items():
        _node(inner, f"{at}.properties[{name}]", found)
    if isinstance(rest := schema.get("additionalProperties"), Mapping):
        _node(rest, f"{at}.additionalProperties", found)
    if isinstance(items := schema.get("items"), Mapping):
        _node(items, f"{at}.items", found)
    for word in ("allOf", "anyOf", "oneOf"):
        for index, inner in enumerate(schema.get(word) or ()):
            _plain(
                inner,
                f"{at}.{word}[{index}]",
                found,
                bool(schema.get("x-kubernetes-int-or-string")),
            )
    if isinstance(inner := schema.get("not"), Mapping):
        _plain(inner, f"{at}.not", found, False)


def _plain(schema: Mapping[str, Any], at: str, found: list[ErrorCause], typed: bool) -> None:
    for word in ("type", "default", "nullable", "description", "additionalProperties"):
        if schema.get(word) and not (typed and word == "type"):
            text = (
                "must be empty to be structural"
                if word == "type"
                else "must be undefined to be structural"
            )
            found.append(_forbidden(f"{at}.{word}", text))
    _pattern(schema, at, found)
    for name, inner in (schema.get("properties") or {}).items():
        _plain(inner, f"{at}.properties[{name}]", found, False)


def _rules(
    schema: Mapping[str, Any], at: str, found: list[ErrorCause], *, root: bool = False
) -> None:
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        field = f"{at}.x-kubernetes-validations[{index}]"
        try:
            compile_rules({**schema, "x-kubernetes-validations": [rule]}, root=root)
        except InvalidRule as problem:
            found.append(
                _invalid(f"{field}.{problem.field}", rule.get(problem.field, ""), str(problem))
            )
    for name, inner in (schema.get("properties") or {}).items():
        _rules(inner, f"{at}.properties[{name}]", found)
    for word in ("additionalProperties", "items"):
        if isinstance(inner := schema.get(word), Mapping):
            _rules(inner, f"{at}.{word}", found)


def _defaults(schema: Mapping[str, Any], at: str, found: list[ErrorCause]) -> None:
    if "default" in schema:
        problems: list[ErrorCause] = []
        validation.validator(schema)(schema["default"], "", problems, composition.MISSING)
        for problem in problems:
            where = f"{at}.default" + (f".{problem.field}" if problem.field else "")
            found.append(ErrorCause(problem.reason, problem.message, where))
    for name, inner in (schema.get("properties") or {}).items():
        _defaults(inner, f"{at}.properties[{name}]", found)
    for word in ("additionalProperties", "items"):
        if isinstance(inner := schema.get(word), Mapping):
            _defaults(inner, f"{at}.{word}", found)


def _conversion(spec: Object) -> list[ErrorCause]:
    conversion = spec.get("conversion") or {}
    strategy = conversion.get("strategy")
    if strategy not in ("None", "Webhook"):
        text = f'Unsupported value: "{strategy}": supported values: "None", "Webhook"'
        return [ErrorCause("FieldValueNotSupported", text, "spec.conversion.strategy")]
    if strategy == "Webhook" and not conversion.get("webhook"):
        text = "required when strategy is set to Webhook"
        return [_required("spec.conversion.webhookClientConfig", text)]
    return []


def _fixed(new: Object, old: Object) -> list[ErrorCause]:
    found = []
    for path in (("scope",), ("names", "kind"), ("names", "plural"), ("group",)):
        a: Any = new
        b: Any = old
        for part in path:
            a, b = (a or {}).get(part), (b or {}).get(part)
        if a != b:
            found.append(_invalid("spec." + ".".join(path), a, "field is immutable"))
    return found
