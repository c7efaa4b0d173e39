"""
Adds rare features to generated Karpenter cases.

Pods: many of a kind, resources at pod level, extended resources, tolerations that compare,
selectors that select everything or nothing, owners, start times, deletion, readiness. Nodes: many
equal ones, drift, numeric taints. Pools: termination grace periods, expiration. Several
PodDisruptionBudgets.
"""

import copy
from collections.abc import Mapping
from random import Random
from typing import Any

from moxwell.scheduling.well_known_labels import DO_NOT_DISRUPT, HOSTNAME

Json = Mapping[str, Any]
_DEVICE = "example.com/device"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_LEVEL = {"key": "level", "value": "5", "effect": "NoSchedule"}
_COMPARING: tuple[Json, ...] = (
    {"key": "level", "operator": "Gt", "value": "3"},
    {"key": "level", "operator": "Lt", "value": "3", "effect": "NoSchedule"},
    {"key": "level", "operator": "Lt", "value": "9", "effect": "NoSchedule"},
    {"key": "level", "operator": "Equal", "value": "5"},
    {"key": "karpenter.sh/disrupted", "operator": "Exists"},
    {"operator": "Exists", "effect": "NoExecute"},
)
_SELECTORS: tuple[Json | None, ...] = (
    None,
    {},
    {"matchExpressions": [{"key": "rev", "operator": "NotIn", "values": ["v1"]}]},
    {"matchExpressions": [{"key": "absent", "operator": "DoesNotExist"}]},
    {"matchLabels": {"app": "a0", "rev": "v2"}},
)
_AMOUNTS: tuple[Json, ...] = (
    {"maxUnavailable": 0},
    {"maxUnavailable": "0%"},
    {"minAvailable": "100%"},
    {"minAvailable": 1},
)
_PROTECTED = ("true", "10m", "4h", "90m", "1h30m", "0s", "-5m", "soon", "false")


class RareFeatures:
    """Random changes of cases; the same random numbers give the same changes."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def added(self, case: Any) -> Json:
        """The case with more features, changed in place."""
        given = case["input"]
        moving = given.get("kind") == "consolidation"
        if moving:
            self._copy_nodes(given)
        for pool in given["nodePools"]:
            self._change_pool(pool)
        for node in given.get("nodes") or ():
            self._change_node(node, moving)
        for group in given["pods"]:
            self._change_group(group, moving)
        if moving:
            self._add_limits(given)
        named: Json = case
        return named

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _name(self) -> str:
        return "".join(self._random.choices(_ALPHABET, k=7))

    def _copy_nodes(self, given: Any) -> None:
        """Some nodes several times with their pods, so that candidates are equal."""
        nodes = given.get("nodes") or []
        for node in tuple(nodes):
            if node["state"] != "initialized" or not self._chance(0.3):
                continue
            for _ in range(self._random.choice((1, 2, 4, 7))):
                name = f"node-{self._name()}"
                labels = {**node["labels"], HOSTNAME: name}
                nodes.append({**copy.deepcopy(node), "name": name, "labels": labels})
                own = [g for g in given["pods"] if g.get("nodeName") == node["name"]]
                given["pods"] += [
                    {**copy.deepcopy(g), "names": [f"old-{self._name()}"], "nodeName": name}
                    for g in own
                ]

    def _change_pool(self, pool: Any) -> None:
        inner = pool["spec"]["template"]["spec"]
        if self._chance(0.3):
            inner["terminationGracePeriod"] = self._random.choice(("30s", "1h"))
        if self._chance(0.2):
            inner["expireAfter"] = self._random.choice(("Never", "2h", "720h"))
        if self._chance(0.15):
            inner["taints"] = [*inner.get("taints", ()), dict(_LEVEL)]

    def _change_node(self, node: Any, moving: bool) -> None:
        if self._chance(0.08):
            node["taints"] = [*node.get("taints", ()), dict(_LEVEL)]
        if self._chance(0.1):
            device = {_DEVICE: self._random.choice(("1", "4"))}
            node["capacity"] = {**node["capacity"], **device}
            node["allocatable"] = {**node["allocatable"], **device}
        if node["state"] in ("registered", "launched") and self._chance(0.3):
            taint = {"key": "readiness.k8s.io/network", "effect": "NoSchedule"}
            node["taints"] = [*node.get("taints", ()), taint]
        if moving and node["state"] == "initialized" and self._chance(0.25):
            node["driftedAgo"] = self._random.randrange(1, 3600)

    def _change_group(self, group: Any, moving: bool) -> None:
        bound = "nodeName" in group
        if not bound and self._chance(0.12):
            more = self._random.choice((10, 25, 60))
            group["names"] += [f"pod-{self._name()}" for _ in range(more)]
        if self._chance(0.1):
            group["owner"] = self._random.choice(("StatefulSet", "none", "Job", "DaemonSet"))
        self._change_spec(group["pod"]["spec"], bound)
        if moving and bound:
            self._change_running(group)

    def _change_spec(self, spec: Any, bound: bool) -> None:
        if self._chance(0.06):
            cpu = f"{self._random.choice((300, 900, 2500))}m"
            spec["resources"] = {"requests": {"cpu": cpu, "memory": "700Mi"}}
        if self._chance(0.05) and not bound:
            own = spec["containers"][0]["resources"]["requests"]
            own[_DEVICE] = self._random.choice(("1", "2"))
        if self._chance(0.12):
            extra = dict(self._random.choice(_COMPARING))
            spec["tolerations"] = [*spec.get("tolerations", ()), extra]
        if self._chance(0.05):
            spec["containers"].append({"name": "plain"})
        for each in spec.get("topologySpreadConstraints", ()):
            self._change_selector(each)
        for each in _affinity_terms(spec):
            self._change_selector(each)
        self._add_fields(spec)

    def _change_selector(self, term: Any) -> None:
        if not self._chance(0.15):
            return
        found = self._random.choice(_SELECTORS)
        term.pop("labelSelector", None)
        if found is not None:
            term["labelSelector"] = found

    def _add_fields(self, spec: Any) -> None:
        terms = (spec.get("affinity") or {}).get("nodeAffinity", {}).get(_REQUIRED)
        if terms and self._chance(0.1):
            field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
            terms["nodeSelectorTerms"][0]["matchFields"] = [field]
        if terms and self._chance(0.05):
            terms["nodeSelectorTerms"].insert(0, {})

    def _change_running(self, group: Any) -> None:
        if self._chance(0.25):
            group["startedAgo"] = self._random.choice((30, 900, 5400, 100000))
        if self._chance(0.08):
            group["unready"] = True
        if self._chance(0.08):
            group["terminating"] = True
        if self._chance(0.08):
            meta = group["pod"].get("metadata", {})
            notes = {**meta.get("annotations", {}), DO_NOT_DISRUPT: self._random.choice(_PROTECTED)}
            group["pod"]["metadata"] = {**meta, "annotations": notes}

    def _add_limits(self, given: Any) -> None:
        found = list(given.get("pdbs", ()))
        for number in range(self._random.choice((0, 0, 1, 2))):
            found.append(self._limit(f"more-{number}"))
        if found:
            given["pdbs"] = found

    def _limit(self, name: str) -> Json:
        random = self._random
        allowed = random.choice((0, 0, 1))
        amount = random.choice(_AMOUNTS)
        selector: Json | None = random.choice(
            (*_SELECTORS, {"matchLabels": {"app": random.choice(("a1", "a2", "a3"))}})
        )
        spec: dict[str, Any] = dict(amount)
        if selector is not None:
            spec["selector"] = selector
        if self._chance(0.3):
            spec["unhealthyPodEvictionPolicy"] = random.choice(("AlwaysAllow", "IfHealthyBudget"))
        status = {
            "disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 1,
            "expectedPods": 2,
        }  # fmt: skip
        namespace = random.choice(("default", "default", "red"))
        return {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": status}


def _affinity_terms(spec: Json) -> list[Any]:
    found: list[Any] = []
    for kind in ("podAffinity", "podAntiAffinity"):
        for terms in ((spec.get("affinity") or {}).get(kind) or {}).values():
            found += [t.get("podAffinityTerm", t) for t in terms]
    return found
