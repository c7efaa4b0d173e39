"""
``/cluster/ha/rules`` (9.x): node affinity and resource affinity.

The schema of a rule depends on its type; an error names a property with its type, as in
``oneOf[node-affinity].nodes``.
"""

from typing import Any

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import FormatError, die, param_error
from moxwell.lab.proxmox.ha.rules_checks import problems
from moxwell.lab.proxmox.parameter_validation import MISSING, UNKNOWN, coerce
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import by_schema
from moxwell.lab.proxmox.schema.catalog import catalog
from moxwell.lab.proxmox.state import Row

KINDS = ("node-affinity", "resource-affinity")
_BASE = ("rule", "type", "delete", "digest")
_OWN = {"node-affinity": ("nodes", "strict"), "resource-affinity": ("affinity",)}
_CHANGE = ("rule", "delete", "digest")
_REQUIRED = {"node-affinity": ("nodes",), "resource-affinity": ("affinity",)}


def _verified(call: PveCall, *, create: bool) -> dict[str, Any]:
    """Validate the parameters of a rule against the schema of its type."""
    kind, given = call.params.get("type"), call.params
    if kind not in KINDS:
        raise param_error(_unknown_kind(given, kind))
    facts = catalog(call.major).find("POST", "/cluster/ha/rules")
    fields = dict(facts.params) if facts else {}
    other = {name for names in _OWN.values() for name in names} - set(_OWN[kind])
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name in [n for n in given if n not in ("delete", "digest")]:
        if name not in fields or name in other:
            errors[name] = UNKNOWN
            continue
        try:
            values[name] = coerce(fields[name], given[name], name, call.major)
        except FormatError as problem:
            errors[f"oneOf[{kind}].{name}" if name not in _BASE else name] = str(problem)
    for name in (*_REQUIRED[kind], "resources") if create else ():
        if name not in given:
            errors[f"oneOf[{kind}].{name}"] = MISSING
    if errors:
        raise param_error(errors)
    if not values.get("disable"):
        values.pop("disable", None)
    return values


def _unknown_kind(given: dict[str, Any], kind: Any) -> dict[str, str]:
    """Without a type, only the properties that all types share by definition are known."""
    errors = {name: UNKNOWN for name in given if name not in _BASE}
    if kind is None:
        return errors | {"type": MISSING}
    listed = ", ".join(KINDS)
    text = f"value '{kind}' does not have a value in the enumeration '{listed}'"
    return errors | {"type": text}


def _row(call: PveCall, name: str) -> Row:
    rules = call.region.ha.rules
    row: Row = {
        "rule": name,
        "order": list(rules).index(name) + 1,
        "digest": digest_of(rules),
        **rules[name],
    }
    texts = problems(rules, len(call.region.hosts)).get(name)
    return row | ({"errors": {"resources": texts}} if texts else {})


def list_rules(call: PveCall) -> list[Row]:
    rules = call.region.ha.rules
    return [
        _row(call, name)
        for name, rule in rules.items()
        if call.get("type", rule["type"]) == rule["type"]
        and ("resource" not in call.params or call.params["resource"] in rule["resources"])
    ]


def get_rule(call: PveCall) -> Row:
    name = call.params["rule"]
    if name not in call.region.ha.rules:
        raise die(f"no such ha rule '{name}'")
    return _row(call, name)


def create_rule(call: PveCall) -> None:
    values, error_prefix = _verified(call, create=True), "create ha rule failed: "
    name = values.pop("rule")
    if name in call.region.ha.rules:
        raise die(f"{error_prefix}HA rule '{name}' already defined")
    _check(call, name, values, error_prefix)
    call.region.ha.rules[name] = values


def _check(call: PveCall, name: str, rule: Row, error_prefix: str) -> None:
    region = call.region
    if not rule["resources"]:
        raise die(f"{error_prefix}no resources were specified")
    unmanaged = [s for s in rule["resources"].split(",") if s not in region.ha.resources]
    if unmanaged:
        raise die(f"{error_prefix}cannot use unmanaged resource(s) {', '.join(unmanaged)}.")
    nodes = [item.partition(":")[0] for item in str(rule.get("nodes", "")).split(",") if item]
    missing = [node for node in nodes if node not in region.hosts]
    if missing:
        raise die(f"{error_prefix}cannot use non-existent node(s) {', '.join(missing)}.")
    texts = problems(region.ha.rules | {name: rule}, len(region.hosts)).get(name)
    if texts:
        raise die(f"{error_prefix}400 Rule '{name}' is invalid.\nresources: {', '.join(texts)}")


def update_rule(call: PveCall) -> None:
    error_prefix = "update HA rules failed: "
    values, rules = _verified(call, create=False), call.region.ha.rules
    name = values.pop("rule")
    if name not in rules:
        raise die(f"{error_prefix}HA rule '{name}' does not exist")
    if call.params.get("digest", digest_of(rules)) != digest_of(rules):
        raise die(
            f"{error_prefix}detected modified configuration - "
            "file changed by other user? Try again."
        )
    if values.pop("type") != rules[name]["type"]:
        raise die(f"{error_prefix}unexpected property 'type'")
    removed = formats.split_list(call.params.get("delete", ""))
    new = {k: v for k, v in rules[name].items() if k not in removed} | values
    _check(call, name, new, error_prefix)
    rules[name] = new


def delete_rule(call: PveCall) -> None:
    call.region.ha.rules.pop(call.params["rule"], None)


_RULES, _RULE = "/cluster/ha/rules", "/cluster/ha/rules/{rule}"
ROUTES = (
    ApiRoute("GET", _RULES, list_rules, permission=by_schema, version=9),
    ApiRoute("POST", _RULES, create_rule, permission=by_schema, version=9, base=("rule",)),
    ApiRoute("GET", _RULE, get_rule, permission=by_schema, version=9),
    ApiRoute("PUT", _RULE, update_rule, permission=by_schema, version=9, base=_CHANGE),
    ApiRoute("DELETE", _RULE, delete_rule, permission=by_schema, version=9),
)
