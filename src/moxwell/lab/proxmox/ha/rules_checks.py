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
MANY_NODE_RULES = "resources are in multiple node affinity rules"
WITH_OTHERS = (
    "at least one resource is in a positive resource affinity"
    " rule and there are other resources in at least one"
    " other node affinity rule already"
)
TOO_FEW_NODES = "two or more resources are restricted to less nodes than available to the resources"
RESTRICTS = (
    "at least one resource is in a negative resource affinity"
    " rule and this rule would restrict these to less nodes"
    " than available to the resources"
)
Problems = dict[str, list[str]]
Rules = dict[str, Row]


def resources(rule: Row) -> set[str]:
    return set(str(rule["resources"]).split(","))


def _nodes(rule: Row) -> set[str]:
    return {item.partition(":")[0] for item in str(rule["nodes"]).split(",")}


def problems(rules: Rules, nodes: int) -> Problems:
    """Messages per rule; rules without a problem are omitted."""
    found: Problems = {}
    active = {name: rule for name, rule in rules.items() if not rule.get("disable")}
    by_node = {n: r for n, r in active.items() if r["type"] == "node-affinity"}
    affine = {n: r for n, r in active.items() if r["type"] == "resource-affinity"}
    together = {n: r for n, r in affine.items() if r["affinity"] == "positive"}
    apart = {n: r for n, r in affine.items() if r["affinity"] == "negative"}
    _shared_node_affinity(by_node, found)
    for name, rule in affine.items():
        if len(resources(rule)) < 2:
            _add(found, name, TOO_FEW_RESOURCES)
    for name, rule in apart.items():
        if len(resources(rule)) > nodes:
            _add(found, name, TOO_MANY_RESOURCES)
    groups = _joined(together)
    _contradictions(groups, apart, found)
    _priorities(by_node, affine, found)
    _many_node_rules(groups, by_node, found)
    _restricted(apart, by_node, found)
    return found


def _add(found: Problems, name: str, text: str) -> None:
    if text not in found.setdefault(name, []):
        found[name].append(text)


def _joined(together: Rules) -> list[tuple[list[str], set[str]]]:
    """Positive rules that share resources, with all their resources."""
    groups: list[tuple[list[str], set[str]]] = []
    for name, rule in sorted(together.items(), key=lambda item: min(resources(item[1]))):
        for names, shared in groups:
            if shared & resources(rule):
                names.append(name)
                shared |= resources(rule)
                break
        else:
            groups.append(([name], resources(rule)))
    return groups


def _shared_node_affinity(by_node: dict[str, Row], found: Problems) -> None:
    for (one, first), (other, second) in combinations(sorted(by_node.items()), 2):
        for sid in sorted(resources(first) & resources(second)):
            text = f"resource '{sid}' is already used in another node affinity rule"
            _add(found, one, text)
            _add(found, other, text)


def _contradictions(
    groups: list[tuple[list[str], set[str]]], apart: Rules, found: Problems
) -> None:
    for names, shared in groups:
        for name, rule in sorted(apart.items()):
            if len(shared & resources(rule)) >= 2:
                _add(found, name, WITH_POSITIVE)
                for positive in names:
                    _add(found, positive, WITH_NEGATIVE)


def _paired(by_node: Rules, shared: set[str]) -> Rules:
    """The node affinity rules of any of the resources."""
    return {name: rule for name, rule in by_node.items() if resources(rule) & shared}


def _priorities(by_node: Rules, affine: Rules, found: Problems) -> None:
    for name, rule in affine.items():
        paired = _paired(by_node, resources(rule))
        if any(_has_steps(other) for other in paired.values()):
            _add(found, name, MULTIPLE_PRIORITIES)
            for other in paired:
                _add(found, other, STEPS)


def _has_steps(rule: Row) -> bool:
    """Whether a rule prefers some of its nodes."""
    return len({item.partition(":")[2] or "0" for item in str(rule["nodes"]).split(",")}) > 1


def _many_node_rules(
    groups: list[tuple[list[str], set[str]]], by_node: Rules, found: Problems
) -> None:
    for names, shared in groups:
        paired = _paired(by_node, shared)
        if len(paired) > 1:
            for name in names:
                _add(found, name, MANY_NODE_RULES)
            for name in paired:
                _add(found, name, WITH_OTHERS)


def _restricted(apart: Rules, by_node: Rules, found: Problems) -> None:
    """Negative rules whose resources may run on too few nodes."""
    for name, rule in apart.items():
        paired = _paired(by_node, resources(rule))
        located = {sid for other in paired.values() for sid in resources(other) & resources(rule)}
        if len({node for other in paired.values() for node in _nodes(other)}) < len(located):
            _add(found, name, TOO_FEW_NODES)
            for other_name in paired:
                _add(found, other_name, RESTRICTS)
