"""
``/cluster/ha/rules`` (9.x): node affinity and resource affinity.

The schema of a rule depends on its type; an error names a property with its type, as in
``oneOf[node-affinity].nodes``.
"""

from typing import Any

from moxwell.lab.proxmox.cluster import digest_of
from moxwell.lab.proxmox.config_schema import formats
from moxwell.lab.proxmox.errors import FormatError, PveException, die, failing_as, param_error
from moxwell.lab.proxmox.ha.rules_checks import problems
from moxwell.lab.proxmox.parameter_validation import MISSING, UNKNOWN, coerce
from moxwell.lab.proxmox.request_context import PveCall
from moxwell.lab.proxmox.route import ApiRoute
from moxwell.lab.proxmox.route_permissions import by_schema
from moxwell.lab.proxmox.schema.catalog import catalog
from moxwell.lab.proxmox.section_config import SectionType
from moxwell.lab.proxmox.state import Row

KINDS = ("node-affinity", "resource-affinity")
_BASE = ("rule", "type", "delete", "digest")
_OWN = {"node-affinity": ("nodes", "strict"), "resource-affinity": ("affinity",)}
_SECTIONS = {
    kind: SectionType.of(f"resources {_OWN[kind][0]}", "strict disable comment") for kind in KINDS
}
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
    return values | {k: _sorted(k, values[k]) for k in ("resources", "nodes") if k in values}


def _sorted(name: str, text: str) -> str:
    """A list as Proxmox stores it: sorted, each item once, without a priority of 0."""
    items = dict.fromkeys(formats.split_list(text))
    if name == "nodes":
        items = dict.fromkeys(item.removesuffix(":0") for item in items)
    return ",".join(sorted(items))


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
    values = _verified(call, create=True)
    name, rules = values.pop("rule"), call.region.ha.rules
    with failing_as("create ha rule failed"):
        if name in rules:
            raise die(f"HA rule '{name}' already defined")
        _check_references(call, values)
        _check_feasibility(call, name, values)
        rules[name] = values


def _check_references(call: PveCall, given: Row) -> None:
    """Check that what a request names is there."""
    region = call.region
    if "resources" in given:
        sids = formats.split_list(given["resources"])
        if not sids:
            raise die("no resources were specified")
        if unmanaged := [sid for sid in sids if sid not in region.ha.resources]:
            raise die(f"cannot use unmanaged resource(s) {', '.join(unmanaged)}.")
    nodes = [item.partition(":")[0] for item in formats.split_list(given.get("nodes", ""))]
    if missing := [node for node in nodes if node not in region.hosts]:
        raise die(f"cannot use non-existent node(s) {', '.join(missing)}.")


def _check_feasibility(call: PveCall, name: str, rule: Row) -> None:
    region = call.region
    texts = problems(region.ha.rules | {name: rule}, len(region.hosts)).get(name)
    if texts:
        raise PveException(400, f"Rule '{name}' is invalid.", {"resources": ", ".join(texts)})


def update_rule(call: PveCall) -> None:
    values, rules = _verified(call, create=False), call.region.ha.rules
    name = values.pop("rule")
    with failing_as("update HA rules failed"):
        if call.params.get("digest", digest_of(rules)) != digest_of(rules):
            raise die("detected modified configuration - file changed by other user? Try again.")
        if name not in rules:
            raise die(f"HA rule '{name}' does not exist")
        kind = rules[name]["type"]
        if values.pop("type") != kind:
            raise die("unexpected property 'type'")
        _check_references(call, values)
        new = dict(rules[name])
        _SECTIONS[kind].delete(new, values, formats.split_list(call.params.get("delete", "")))
        new |= values
        _check_feasibility(call, name, new)
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
