"""
Makes random cases for the recorder of Karpenter's decisions, mixing the features of all groups.

``karpenter_generate.py --seed 1 --cases 200 --catalogues FILE --out FILE`` writes one case file
without answers. ``--kind consolidation`` makes cases about nodes that may be deleted or replaced.
``--dense`` gives each case more features at a time, ``--rare`` adds features that are rare. The
same seed gives the same cases.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from karpenter_cases import read_json
from karpenter_generate_pods import PodGenerator, Scene
from karpenter_generate_rare import RareFeatures
from moxwell.scheduling.resource_lists import less, offered, quantity_text, requested
from moxwell.scheduling.well_known_labels import (
    CAPACITY_TYPE,
    DO_NOT_DISRUPT,
    HOSTNAME,
    INSTANCE_TYPE,
    NODE_POOL,
    REGION,
    ZONE,
)

Json = Mapping[str, Any]
_FAMILY = "karpenter.proxmox.sinextra.dev/instance-family"
_STARTUP = {"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_NODE_TAINTS = (
    {"key": "dedicated", "value": "db", "effect": "NoSchedule"},
    {"key": "soft", "value": "x", "effect": "PreferNoSchedule"},
    {"key": "gpu", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
    {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},
)
_BUDGETS: tuple[Json, ...] = (
    {"nodes": "0"},
    {"nodes": "1"},
    {"nodes": "2"},
    {"nodes": "30%"},
    {"nodes": "50%"},
    {"nodes": "0", "reasons": ["Underutilized"]},
    {"nodes": "1", "reasons": ["Empty"]},
    {"nodes": "0", "reasons": ["Drifted"]},
    {"nodes": "0", "schedule": "0 12 * * *", "duration": "1h"},
    {"nodes": "1", "schedule": "*/20 11-12 * * thu", "duration": "10m"},
    {"nodes": "0", "schedule": "0 3 * * *", "duration": "1h"},
    {"nodes": "1", "schedule": "@hourly", "duration": "5m"},
)


class DenseRandom(Random):
    """Draws that make each feature likelier, so that a case mixes more of them."""

    def random(self) -> float:
        return super().random() ** 2

    def getrandbits(self, k: int, /) -> int:
        return super().getrandbits(k)


class CaseGenerator:
    """Random cases over a set of catalogues."""

    def __init__(self, random: Random, catalogues: Mapping[str, Sequence[Json]]) -> None:
        self._random = random
        self._catalogues = catalogues

    def case(self, name: str, kind: str) -> Json:
        """One case, without its answer."""
        moving = kind == "consolidation"
        random = self._random
        catalogue = random.choice(sorted(self._catalogues))
        scene = Scene(random, self._catalogues[catalogue])
        pools = [self._pool(scene, moving) for _ in range(random.choice((1, 1, 2, 3)))]
        if random.random() < 0.1:
            pools[0]["catalogue"] = random.choice(sorted(self._catalogues))
        pods = PodGenerator(scene)
        nodes = self._nodes(scene, pools, moving)
        given: dict[str, Any] = {"catalogue": catalogue, "nodePools": pools}
        given["pods"] = self._bound(scene, pods, nodes, moving)
        if not moving or random.random() < 0.2:
            given["pods"] += pods.pending(random.choice((1, 2, 3, 4, 5, 6)))
        if moving:
            given["kind"] = kind
            given |= self._disruption_budgets()
        given |= {"nodes": nodes} if nodes else {}
        given |= self._surroundings(pods, moving)
        return {"name": name, "note": "generated", "input": given}

    def _pool(self, scene: Scene, moving: bool) -> dict[str, Any]:
        random = self._random
        inner: dict[str, Any] = {"requirements": self._pool_requirements(scene)}
        if random.random() < 0.2:
            inner["taints"] = [dict(random.choice(_NODE_TAINTS[:3]))]
        if random.random() < 0.15:
            inner["startupTaints"] = [_STARTUP]
        template: dict[str, Any] = {"spec": inner}
        if random.random() < 0.3:
            template["metadata"] = {"labels": self._pool_labels()}
        spec: dict[str, Any] = {"template": template}
        if random.random() < 0.4:
            spec["weight"] = random.choice((1, 5, 10, 50, 100))
        if random.random() < 0.25:
            spec["limits"] = self._limits()
        if moving:
            spec["disruption"] = self._disruption()
        return {"name": f"pool-{scene.suffix()}", "spec": spec}

    def _pool_labels(self) -> dict[str, str]:
        random = self._random
        found = {"team": random.choice(("red", "blue"))}
        if random.random() < 0.5:
            found["rack"] = random.choice(("r1", "r2", "r9"))
        return found

    def _limits(self) -> dict[str, str]:
        random = self._random
        options = {
            "cpu": ("2", "4", "8", "16", "30", "64", "500"),
            "memory": ("8Gi", "16Gi", "64Gi", "200Gi"),
            "nodes": ("1", "2", "3", "10"),
        }
        names = random.sample(sorted(options), random.choice((1, 1, 2)))
        return {name: random.choice(options[name]) for name in names}

    def _pool_requirements(self, scene: Scene) -> list[Json]:
        random = self._random
        found: list[Json] = [scene.expression() for _ in range(random.choice((0, 0, 0, 1, 1, 2)))]
        if random.random() < 0.35:
            types = random.choice((["on-demand"], ["spot"], ["spot", "on-demand"]))
            found.append({"key": CAPACITY_TYPE, "operator": "In", "values": types})
        if random.random() < 0.35:
            zones = random.sample(scene.zones, random.randint(1, min(2, len(scene.zones))))
            found.append({"key": ZONE, "operator": "In", "values": zones})
        if random.random() < 0.2:
            key = random.choice((INSTANCE_TYPE, _FAMILY, ZONE, "integer"))
            least = random.choice((1, 2, 3, 4, 5, 15))
            found.append({"key": key, "operator": "Exists", "minValues": least})
        return found

    def _disruption(self) -> dict[str, Any]:
        random = self._random
        found: dict[str, Any] = {
            "consolidationPolicy": random.choice(
                ("WhenEmptyOrUnderutilized", "WhenEmptyOrUnderutilized", "WhenEmpty", "Balanced")
            ),
            "consolidateAfter": random.choice(("0s", "0s", "0s", "30s", "10m", "Never")),
        }
        if random.random() < 0.3:
            count = random.choice((1, 1, 2))
            found["budgets"] = [dict(b) for b in random.sample(_BUDGETS, count)]
        return found

    def _nodes(self, scene: Scene, pools: Sequence[Json], moving: bool) -> list[dict[str, Any]]:
        random = self._random
        counts = (1, 2, 3, 4, 5, 6, 8, 12) if moving else (0, 0, 0, 1, 2, 3, 5)
        return [self._node(scene, pools, moving) for _ in range(random.choice(counts))]

    def _node(self, scene: Scene, pools: Sequence[Json], moving: bool) -> dict[str, Any]:
        random = self._random
        pool, kind = random.choice(pools), random.choice(scene.types)
        states = ("initialized",) * (12 if moving else 4)
        state = random.choice((*states, "registered", "launched", "unmanaged"))
        name = f"node-{scene.suffix()}"
        labels = self._node_labels(kind, pool) | {HOSTNAME: name}
        if state == "unmanaged":
            labels.pop(NODE_POOL)
        capacity = offered(kind["capacity"])
        free = less(capacity, requested(kind.get("overhead")))
        found: dict[str, Any] = {
            "name": name, "state": state, "labels": labels, "capacity": kind["capacity"],
            "allocatable": {n: quantity_text(n, max(0, a)) for n, a in free.items()},
        }  # fmt: skip
        return found | self._node_extras(pool, state, moving)

    def _node_labels(self, kind: Json, pool: Json) -> dict[str, str]:
        random = self._random
        offering = random.choice(kind["offerings"])
        single: dict[str, str] = {
            r["key"]: r["values"][0]
            for r in kind["requirements"]
            if r["operator"] == "In" and len(r["values"]) == 1
        }
        labels = single | {ZONE: offering["zone"], CAPACITY_TYPE: offering["capacityType"]}
        if offering.get("region"):
            labels[REGION] = offering["region"]
        own: dict[str, str] = pool["spec"]["template"].get("metadata", {}).get("labels", {})
        return labels | own | {NODE_POOL: pool["name"]}

    def _node_extras(self, pool: Json, state: str, moving: bool) -> dict[str, Any]:
        random = self._random
        inner = pool["spec"]["template"]["spec"]
        found: dict[str, Any] = {}
        taints = list(inner.get("taints", []))
        if random.random() < 0.08:
            taints.append(random.choice(_NODE_TAINTS))
        if taints:
            found["taints"] = taints
        if state == "registered" and (inner.get("startupTaints") or random.random() < 0.2):
            found["startupTaints"] = [_STARTUP]
        if state != "unmanaged" and random.random() < (0.04 if moving else 0.12):
            found["deleting"] = True
        if random.random() < 0.05:
            found["notReady"] = True
        return found | (self._moving_extras() if moving else {})

    def _moving_extras(self) -> dict[str, Any]:
        random = self._random
        found: dict[str, Any] = {}
        if random.random() < 0.06:
            found["annotations"] = {DO_NOT_DISRUPT: random.choice(("true", "true", "false"))}
        if random.random() < 0.15:
            found["lastPodEventAgo"] = random.choice((5, 20, 45, 60, 3000))
        if random.random() < 0.08:
            found["consolidatable"] = False
        if random.random() < 0.2:
            found["age"] = random.choice((10, 120, 7200, 86400))
        return found

    def _bound(
        self, scene: Scene, pods: PodGenerator, nodes: Sequence[Json], moving: bool
    ) -> list[Json]:
        random = self._random
        found = []
        for node in nodes:
            if node["state"] == "launched" or random.random() < 0.15:
                continue
            left = offered(node["allocatable"]).get("cpu", 0) * random.choice((0.2, 0.5, 0.8, 1))
            for _ in range(random.choice((0, 1, 2, 3, 5))):
                group = pods.bound(node["name"], int(left // 2))
                if group is None:
                    break
                found.append(self._with_costs(group) if moving else group)
                left -= pods.cpu_of(group) * len(group["names"])
        return found

    def _with_costs(self, group: Json) -> Json:
        random = self._random
        meta = dict(group["pod"].get("metadata", {}))
        cost = str(random.randrange(-200, 900) * 100000)
        notes = {_DELETION_COST: cost}
        if random.random() < 0.05:
            notes["karpenter.sh/do-not-disrupt"] = random.choice(("true", "true", "10m", "4h"))
        spec = dict(group["pod"]["spec"])
        if random.random() < 0.15:
            spec["priority"] = random.choice((-100000000, 1000, 500000000))
        owner = {"owner": "DaemonSet"} if random.random() < 0.04 else {}
        return {**group, **owner, "pod": {"spec": spec, "metadata": {**meta, "annotations": notes}}}

    def _disruption_budgets(self) -> dict[str, Any]:
        random = self._random
        if random.random() > 0.25:
            return {}
        allowed = random.choice((0, 0, 1))
        status = {
            "disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 1,
            "expectedPods": 2,
        }  # fmt: skip
        app = random.choice(("a0", "a1", "a2"))
        spec = {"maxUnavailable": allowed, "selector": {"matchLabels": {"app": app}}}
        meta = {"name": "guard", "namespace": "default"}
        return {"pdbs": [{"metadata": meta, "spec": spec, "status": status}]}

    def _surroundings(self, pods: PodGenerator, moving: bool) -> dict[str, Any]:
        random = self._random
        found: dict[str, Any] = {}
        options: dict[str, Any] = {}
        if random.random() < 0.25:
            options["minValuesPolicy"] = random.choice(("Strict", "BestEffort", "BestEffort"))
        if random.random() < 0.15:
            options["preferencePolicy"] = "Ignore"
        if random.random() < 0.08:
            options["reservedCapacity"] = False
        if moving and random.random() < 0.4:
            options["spotToSpotConsolidation"] = True
        if options:
            found["options"] = options
        if random.random() < 0.3:
            found["daemonSets"] = pods.daemon_sets(random.choice((1, 1, 2, 3)))
        found["namespaces"] = [
            {"metadata": {"name": name, "labels": labels}}
            for name, labels in (
                ("default", {}),
                ("red", {"env": "prod"}),
                ("blue", {"env": "test"}),
            )
        ]
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--kind", choices=("provisioning", "consolidation"), default="provisioning")
    parser.add_argument("--dense", action="store_true")
    parser.add_argument("--rare", action="store_true")
    parser.add_argument("--catalogues", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    random = (DenseRandom if arguments.dense else Random)(arguments.seed)
    generator = CaseGenerator(random, read_json(arguments.catalogues))
    group = f"generated-{arguments.kind}-{arguments.seed}" + "-dense" * arguments.dense
    group += "-rare" * arguments.rare
    cases = [generator.case(f"{group}-{i}", arguments.kind) for i in range(arguments.cases)]
    if arguments.rare:
        cases = list(map(RareFeatures(Random(arguments.seed)).added, cases))
    arguments.out.write_text(json.dumps({"group": group, "note": arguments.kind, "cases": cases}))


if __name__ == "__main__":
    main()
