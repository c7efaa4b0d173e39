"""
Detects infeasible HA rules, alone or in combination.

Pure: takes all rules and the number of nodes, returns messages per rule. The API returns the same
messages when it rejects a rule and when it lists an existing rule that became infeasible.
"""

from itertools import combinations

from moxwell.lab.proxmox.state import Row

TOO_FEW_RESOURCES = "rule is ineffective as there are less than two resources"
TOO_MANY_RESOURCES = "rule defines more resources than available nodes"
WITH_NEGATIVE = "rule shares two or more resources with a negative resource affinity rule"
WITH_POSITIVE = "rule shares two or more resources with a positive resource affinity rule"
MULTIPLE_PRIORITIES = "resources are in node affinity rules with multiple priorities"
STEPS = (
    "resources are in a resource affinity rule and cannot be in"
    " a node affinity rule with multiple priorities"
)
Problems = dict[str, list[str]]


def resources(rule: Row) -> set[str]:
    return set(str(rule["resources"]).split(","))


def problems(rules: dict[str, Row], nodes: int) -> Problems:
    """Messages per rule; rules without a problem are omitted."""
    found: Problems = {}
    active = {name: rule for name, rule in rules.items() if not rule.get("disable")}
    by_node = {n: r for n, r in active.items() if r["type"] == "node-affinity"}
    affine = {n: r for n, r in active.items() if r["type"] == "resource-affinity"}
    _shared_node_affinity(by_node, found)
    for name, rule in affine.items():
        if len(resources(rule)) < 2:
            _add(found, name, TOO_FEW_RESOURCES)
        if rule["affinity"] == "negative" and len(resources(rule)) > nodes:
            _add(found, name, TOO_MANY_RESOURCES)
    _contradictions(affine, found)
    _priorities(by_node, affine, found)
    return found


def _add(found: Problems, name: str, text: str) -> None:
    if text not in found.setdefault(name, []):
        found[name].append(text)


def _shared_node_affinity(by_node: dict[str, Row], found: Problems) -> None:
    for (one, first), (other, second) in combinations(sorted(by_node.items()), 2):
        for sid in sorted(resources(first) & resources(second)):
            text = f"resource '{sid}' is already used in another node affinity rule"
            _add(found, one, text)
            _add(found, other, text)


def _contradictions(affine: dict[str, Row], found: Problems) -> None:
    for (one, first), (other, second) in combinations(sorted(affine.items()), 2):
        kinds = {first["affinity"], second["affinity"]}
        if len(kinds) == 2 and len(resources(first) & resources(second)) >= 2:
            for name, rule in ((one, first), (other, second)):
                positive = rule["affinity"] == "positive"
                _add(found, name, WITH_NEGATIVE if positive else WITH_POSITIVE)


def _priorities(by_node: dict[str, Row], affine: dict[str, Row], found: Problems) -> None:
    for name, rule in by_node.items():
        steps = {item.partition(":")[2] or "0" for item in str(rule["nodes"]).split(",")}
        for other, other_rule in affine.items():
            if len(steps) > 1 and resources(rule) & resources(other_rule):
                _add(found, name, STEPS)
                _add(found, other, MULTIPLE_PRIORITIES)
