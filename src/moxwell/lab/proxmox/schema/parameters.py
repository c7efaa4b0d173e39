"""
Parameter declarations from the facts of the API schema.

Formats with a name come from :mod:`named_formats`, formats written out in the schema become
property strings. The schema does not say how many indexed parameters (``net[n]``) there are.
"""

import re
from collections.abc import Mapping
from typing import Any

from moxwell.lab.proxmox.config_schema.property_strings import PropertyFormat, parse
from moxwell.lab.proxmox.route import Checker, Param, Params, PathChecker
from moxwell.lab.proxmox.schema.named_formats import PROPERTY_STRINGS, find_check

_COUNTS = {
    "ide": 4,
    "sata": 6,
    "scsi": 31,
    "virtio": 16,
    "hostpci": 16,
    "numa": 8,
    "usb": 14,
    "serial": 4,
    "parallel": 3,
    "virtiofs": 10,
    "unused": 256,
    "mp": 256,
    "dev": 256,
    "link": 8,
    "acmedomain": 6,
}
_SHORT_ID = {"pattern": "[a-zA-Z][a-zA-Z0-9]*[a-zA-Z0-9]", "minLength": 2, "maxLength": 8}


def build_params(specs: Mapping[str, Mapping[str, Any]], major: int) -> Params:
    """The declarations of all parameters of a method."""
    return {name: build_param(name, _released(spec, major)) for name, spec in specs.items()}


def _released(spec: Mapping[str, Any], major: int) -> Mapping[str, Any]:
    """Differences of the newest release from the schema: 9.2 checks SDN names by a pattern."""
    if major >= 9 and spec.get("format") in ("pve-sdn-zone-id", "pve-sdn-vnet-id"):
        return {**{key: value for key, value in spec.items() if key != "format"}, **_SHORT_ID}
    return spec


def build_param(name: str, spec: Mapping[str, Any]) -> Param:
    """One declaration."""
    check, property_string = _format(spec)
    items = spec.get("items")
    return Param(
        type=spec.get("type", "string"),
        optional=bool(int(spec.get("optional", 0))),
        minimum=spec.get("minimum"),
        maximum=spec.get("maximum"),
        enum=tuple(spec.get("enum", ())),
        pattern=perl_pattern(spec.get("pattern")),
        format=check,
        property_string=property_string,
        items=build_param(name, items) if items is not None else None,
        max_length=spec.get("maxLength"),
        min_length=spec.get("minLength"),
        requires=spec.get("requires"),
        alias=spec.get("alias"),
        default_key=bool(spec.get("default_key", 0)),
        count=_COUNTS.get(name.removesuffix("[n]"), 32),
    )


def perl_pattern(pattern: str | None) -> str | None:
    """A Perl pattern in the syntax of Python."""
    if pattern is None:
        return None
    return re.sub(r"\(\?\^(i?):", lambda m: f"(?{m[1]}:", pattern)


def _format(spec: Mapping[str, Any]) -> tuple[Checker | None, PathChecker | None]:
    named = spec.get("format")
    if named is None:
        return None, None
    if isinstance(named, Mapping):
        return None, property_checker(property_format(named))
    if named in PROPERTY_STRINGS:
        return None, PROPERTY_STRINGS[named]
    return find_check(named), None


def property_format(keys: Mapping[str, Mapping[str, Any]]) -> PropertyFormat:
    """The format of a property string that the schema writes out."""
    models = frozenset(name for name, key in keys.items() if "keyAlias" in key)
    alias = next(((k["keyAlias"], k["alias"]) for k in keys.values() if "keyAlias" in k), None)
    params = {
        name: build_param(name, {"optional": 1, **key} if "alias" in key else key)
        for name, key in keys.items()
        if name not in models
    }
    return PropertyFormat(params, key_alias=alias, models=models)


def property_checker(schema: PropertyFormat) -> PathChecker:
    """The check of a property string."""

    def check(text: str, path: str, major: int) -> object:
        return parse(schema, text, path, major=major)

    return check
