"""
Validates firewall rules and edits rule lists.

A new rule is inserted at the top regardless of ``pos``; ``enable`` defaults to 0; a group rule
keeps only its group, interface and comment. As in PVE, the first error found is returned.
"""

import re
from typing import Any

from moxwell.lab.proxmox.config_schema.formats import split_list
from moxwell.lab.proxmox.errors import FormatError, PveException, die, param_error
from moxwell.lab.proxmox.firewall.formats import (
    ALIAS,
    ICMP,
    ICMP_TYPES,
    ICMPV6,
    ICMPV6_TYPES,
    MACRO_NAMES,
    MACROS,
    NAME,
    WITH_PORTS,
    address_spec,
    port_spec,
)
from moxwell.lab.proxmox.state import Row, SimFirewall, SimRegion

KINDS = ("in", "out", "forward", "group")
_ALLOWED = {
    "ct": ("in", "out", "group"),
    "vm": ("in", "out", "group"),
    "group": ("in", "out", "forward"),
    "cluster": KINDS,
    "host": KINDS,
    "vnet": ("forward", "group"),
}
KEPT = ("type", "action", "comment", "dest", "dport", "enable", "icmp-type", "iface", "log",
        "macro", "proto", "source", "sport")  # fmt: skip
FIELDS = frozenset(KEPT) | {"digest", "pos"}
KEPT_BY_GROUP = ("type", "action", "comment", "enable", "iface")


def make(region: SimRegion, env: str, firewall: SimFirewall, values: dict[str, Any]) -> Row:
    """Create a validated rule from parameters; empty values are omitted."""
    rule = {k: values[k] for k in KEPT if k in values and values[k] not in ("", "-")}
    rule["enable"] = 1 if rule.get("enable") else 0
    if "comment" in rule:
        rule["comment"] = rule["comment"].strip()
    _check_kind(env, rule)
    if rule["type"] == "group":
        return {name: rule[name] for name in KEPT_BY_GROUP if name in rule}
    if "macro" in rule:
        known = MACRO_NAMES.get(rule["macro"].lower())
        if known is None:
            raise param_error({"macro": f"unknown macro '{rule['macro']}'"})
        rule["macro"] = known
    _check_ports(rule)
    version = _ip_version(region, firewall, rule)
    if version:
        rule["ipversion"] = version
    _check_macro(rule)
    return rule


def as_read(region: SimRegion, firewall: SimFirewall, rule: Row) -> Row:
    """A stored rule as Proxmox reads it: with the errors of references that are gone."""
    errors: dict[str, str] = {}
    for name in ("source", "dest") if rule["type"] != "group" else ():
        try:
            _reference(region, firewall, name, rule.get(name, ""))
        except PveException as problem:
            errors |= problem.errors or {}
    if not errors:
        return rule
    return {k: v for k, v in rule.items() if k != "ipversion"} | {"errors": errors}


def _check_kind(env: str, rule: Row) -> None:
    kind, action = rule["type"], rule["action"]
    if kind not in _ALLOWED[env]:
        raise param_error({"type": f"invalid rule type '{kind}' for rule_env '{env}'"})
    if kind == "forward" and action == "REJECT":
        raise param_error({"action": "cannot define REJECT rules on forward chain"})
    if kind != "group" and action not in {"ACCEPT", "DROP", "REJECT"}:
        raise param_error({"action": f"unknown action '{action}'"})
    if "iface" not in rule:
        return
    if env == "group":
        raise param_error({"type": "parameter -i not allowed for this rule type"})
    if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_]{1,20}([:.]\d+)?", rule["iface"]):
        raise param_error({"iface": f"invalid network interface name '{rule['iface']}'"})
    if env in {"vm", "ct"} and not re.fullmatch(r"net\d+", rule["iface"]):
        raise param_error({"iface": "value does not match the regex pattern 'net\\d+'"})


def _check_ports(rule: Row) -> None:
    proto = rule.get("proto", "")
    is_icmp = proto in ICMP | ICMPV6
    if "dport" in rule:
        if not is_icmp:
            _as_param("dport", port_spec, rule["dport"])
        _needs_proto("dport", proto, allowed=is_icmp)
    if "icmp-type" in rule:
        kind = rule["icmp-type"]
        if not is_icmp:
            text = "missing property - 'icmp-type' requires this property"
            raise param_error({"proto": text})
        if "dport" in rule:
            text = "'icmp-type' cannot be specified together with 'dport'"
            raise param_error({"icmp-type": text})
        if kind not in (ICMP_TYPES if proto in ICMP else ICMPV6_TYPES):
            raise param_error({"icmp-type": f"invalid icmp-type '{kind}' for proto '{proto}'"})
    if "sport" in rule:
        _needs_proto("sport", proto)


def _as_param(name: str, check: Any, value: str) -> Any:
    try:
        return check(value)
    except FormatError as problem:
        raise param_error({name: str(problem).rstrip("\n")}) from problem


def _needs_proto(name: str, proto: str, *, allowed: bool = False) -> None:
    if not proto:
        raise param_error({"proto": f"missing property - '{name}' requires this property"})
    if proto not in WITH_PORTS and not allowed:
        raise param_error({name: f"protocol '{proto}' does not support ports"})


def _ip_version(region: SimRegion, firewall: SimFirewall, rule: Row) -> int | None:
    """The IP version that all addresses of a rule share, if it has any."""
    proto, version = rule.get("proto", ""), None
    if proto in ICMP | ICMPV6:
        version = 4 if proto in ICMP else 6
    for name in ("source", "dest"):
        if name not in rule:
            continue
        found = address_spec(rule[name])
        if version and found and found != version:
            raise param_error({name: "detected mixed ipv4/ipv6 addresses in rule"})
        version = found or version
        alias = _reference(region, firewall, name, rule[name])
        if version and alias and alias != version:
            raise die("detected mixed ipv4/ipv6 addresses in rule")
        version = alias or version
    return version


def _reference(region: SimRegion, firewall: SimFirewall, name: str, text: str) -> int | None:
    """Check that an IP set or alias exists; returns the IP version of an alias."""
    cluster = region.firewall
    if text.startswith("+"):
        match = re.fullmatch(rf"\+(?:guest/|dc/|sdn/)?({NAME})", text)
        if not match:
            raise param_error({name: f"invalid ipset name '{text}'"})
        if match[1] not in cluster.ipsets and match[1] not in firewall.ipsets:
            raise param_error({name: f"no such ipset '{match[1]}'"})
        return None
    match = ALIAS.match(text)
    if not match:
        return None
    own, shared = firewall.aliases.get(match[3].lower()), cluster.aliases.get(match[3].lower())
    if own is None and shared is None:
        raise param_error({name: f"no such alias '{text}'"})
    entry = (own if match[2] != "dc" else None) or (shared if match[2] != "guest" else None)
    return entry["ipversion"] if entry else None


def _check_macro(rule: Row) -> None:
    """A rule may not contradict the protocol and ports of its macro."""
    for part in MACROS.get(rule.get("macro", ""), ()):
        proto, _, ports = part.partition("/")
        for name, value in (("proto", proto), ("dport", ports)):
            if value and name in rule and rule[name] != value:
                text = f"parameter '{name}' already define in macro (value = '{value}')"
                raise param_error({name: text})


def changed(old: Row, params: dict[str, Any]) -> dict[str, Any]:
    """An existing rule with the changes of an update request."""
    values = old | {k: v for k, v in params.items() if k in KEPT}
    for name in split_list(params.get("delete", "")):
        if name not in FIELDS and name not in {"type", "action"}:
            raise param_error({"delete": f"no such property ('{name}')"})
        if name in {"type", "action"}:
            raise param_error({"delete": f"unable to delete required property '{name}'"})
        values.pop(name, None)
    return values


def move(rules: list[Row], pos: int, target: int) -> list[Row]:
    """Move the rule at ``pos`` before the rule at ``target``."""
    rule, moved = rules[pos], []
    for scope, other in enumerate(rules):
        if scope == pos:
            continue
        if scope == target:
            moved.append(rule)
        moved.append(other)
    return [*moved, rule] if target >= len(rules) else moved


def at(rules: list[Row], pos: int) -> Row:
    if not 0 <= pos < len(rules):
        raise die(f"no rule at position {pos}")
    return rules[pos]
