"""Random pods of generated Karpenter cases: requests, selectors, affinity, spread, ports."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from moxwell.scheduling.packing.pod_parsing import pod_requests
from moxwell.scheduling.well_known_labels import (
    ARCH,
    CAPACITY_TYPE,
    HOSTNAME,
    NODE_POOL,
    REGION,
    ZONE,
)

Json = Mapping[str, Any]
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_FAMILY = "karpenter.proxmox.sinextra.dev/instance-family"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_CPU = (50, 100, 250, 500, 700, 1000, 1500, 2000, 3000, 3500, 6000)
_MEMORY = (64, 128, 256, 512, 1024, 2048, 3072, 4096, 8192)
_APPS = ("a0", "a1", "a2", "a3")
_TOPOLOGY_KEYS = (HOSTNAME, HOSTNAME, ZONE, ZONE, CAPACITY_TYPE, REGION, "rack", ARCH)
_TOLERATIONS: tuple[Json, ...] = (
    {"key": "dedicated", "operator": "Exists"},
    {"key": "dedicated", "operator": "Equal", "value": "db", "effect": "NoSchedule"},
    {"key": "gpu", "operator": "Exists", "effect": "NoExecute"},
    {"key": "soft", "operator": "Exists"},
    {"operator": "Exists"},
)
_REFUSED: tuple[Json, ...] = (
    {"key": HOSTNAME, "operator": "In", "values": ["n1"]},
    {"key": "karpenter.sh/custom", "operator": "Exists"},
    {"key": NODE_POOL, "operator": "DoesNotExist"},
    {"key": "integer", "operator": "Gt", "values": ["-1"]},
    {"key": CAPACITY_TYPE, "operator": "In", "values": ["nonsense"]},
    {"key": "bad key", "operator": "Exists"},
)


class Scene:
    """What the pods of a case can refer to."""

    def __init__(self, random: Random, types: Sequence[Json]) -> None:
        self.random = random
        self.types = types
        self.zones = sorted({o["zone"] for t in types for o in t["offerings"]})
        self._values: dict[str, set[str]] = {}
        for each in types:
            for requirement in each["requirements"]:
                self._values.setdefault(requirement["key"], set()).update(
                    requirement.get("values", ())
                )
        self._used: set[str] = set()

    def suffix(self) -> str:
        """Five characters that no other name of the case has."""
        while (found := "".join(self.random.choices(_ALPHABET, k=5))) in self._used:
            pass
        self._used.add(found)
        return found

    def expression(self) -> dict[str, Any]:
        """A requirement on a label that instance types or pools have, or on one they lack."""
        random = self.random
        if random.random() < 0.2:
            return self._comparison()
        key = random.choice((*sorted(self._values), _FAMILY, ZONE, "team", "rack", "special"))
        if key == CAPACITY_TYPE:
            known = ["on-demand", "spot", "reserved"]
        else:
            known = sorted(self._values.get(key, ())) or ["red", "blue", "r1"]
        operator = random.choice(("In", "In", "In", "NotIn", "Exists", "DoesNotExist"))
        if operator in ("Exists", "DoesNotExist"):
            return {"key": key, "operator": operator}
        count = random.randint(1, min(len(known), 3))
        values = random.sample(known, count)
        if operator == "In" and random.random() < 0.1 and key != CAPACITY_TYPE:
            values.append("nowhere")
        return {"key": key, "operator": operator, "values": values}

    def _comparison(self) -> dict[str, Any]:
        operator = self.random.choice(("Gt", "Lt", "Gte", "Lte"))
        return {
            "key": "integer", "operator": operator,
            "values": [str(self.random.choice((0, 1, 2, 4, 5, 8, 16)))],
        }  # fmt: skip


class PodGenerator:
    """Random pod groups, daemon sets and pods that run."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._random = scene.random

    def pending(self, groups: int) -> list[Json]:
        """Groups of pods that wait for a node."""
        return [self._group() for _ in range(groups)]

    def _group(self) -> Json:
        random = self._random
        app = random.choice(_APPS)
        count = random.choice((1, 1, 2, 3, 4, 6, 9, 14))
        found: dict[str, Any] = {
            "names": [f"pod-{self._scene.suffix()}" for _ in range(count)],
            "pod": {"spec": self._spec(app), "metadata": {"labels": self._labels(app)}},
        }
        if random.random() < 0.2:
            found["namespace"] = random.choice(("red", "blue"))
        if random.random() < 0.15:
            found["createdAt"] = random.choice((0, 1, 5))
        if random.random() < 0.02:
            found["owner"] = "DaemonSet"
        return found

    def _labels(self, app: str) -> dict[str, str]:
        return {"app": app, "rev": self._random.choice(("v1", "v2"))}

    def bound(self, node: str, most_cpu: int) -> dict[str, Any] | None:
        """A group of pods that run on a node; None if none fits."""
        random = self._random
        sizes = [c for c in _CPU if c <= most_cpu]
        if not sizes:
            return None
        app = random.choice(_APPS)
        spec = self._containers(random.choice(sizes), random.choice(_MEMORY[:5]))
        if random.random() < 0.2:
            spec |= self._placement(app)
        if random.random() < 0.3:
            spec["tolerations"] = [dict(random.choice(_TOLERATIONS))]
        return {
            "names": [f"old-{self._scene.suffix()}"],
            "pod": {"spec": spec, "metadata": {"labels": self._labels(app)}},
            "nodeName": node,
        }

    def cpu_of(self, group: Json) -> int:
        """The CPU that a pod of a group requests, in thousandths."""
        return pod_requests(group["pod"]).get("cpu", 0)

    def daemon_sets(self, count: int) -> list[Json]:
        return [self._daemon_set() for _ in range(count)]

    def _daemon_set(self) -> Json:
        random = self._random
        spec = self._containers(random.choice((50, 100, 300, 700)), random.choice((64, 200, 900)))
        if random.random() < 0.5:
            spec["tolerations"] = [{"operator": "Exists"}]
        if random.random() < 0.3:
            spec["nodeSelector"] = self._selector()
        if random.random() < 0.25:
            spec["affinity"] = {"nodeAffinity": {_REQUIRED: self._terms(random.choice((1, 2)))}}
        if random.random() < 0.1:
            spec["containers"][0]["ports"] = [{"containerPort": 9100, "hostPort": 9100}]
        return {"name": f"ds-{self._scene.suffix()}", "pod": {"spec": spec}}

    def _containers(self, cpu: int, memory: int) -> dict[str, Any]:
        requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
        return {"containers": [{"name": "c", "resources": {"requests": requests}}]}

    def _spec(self, app: str) -> dict[str, Any]:
        random = self._random
        spec = self._containers(random.choice(_CPU), random.choice(_MEMORY))
        self._add_resources(spec)
        if random.random() < 0.3:
            spec["tolerations"] = [dict(random.choice(_TOLERATIONS))]
        if random.random() < 0.25:
            spec["nodeSelector"] = self._selector()
        if random.random() < 0.55:
            spec |= self._placement(app)
        if random.random() < 0.1:
            port: dict[str, Any] = {"containerPort": 80, "hostPort": random.choice((80, 81, 9100))}
            if random.random() < 0.5:
                port["protocol"] = random.choice(("TCP", "UDP"))
            if random.random() < 0.4:
                port["hostIP"] = random.choice(("0.0.0.0", "10.0.0.1", "10.0.0.2", "::1"))
            spec["containers"][0]["ports"] = [port]
        return spec

    def _add_resources(self, spec: dict[str, Any]) -> None:
        random = self._random
        if random.random() < 0.08:
            own = {"name": "i", "resources": {"requests": {"cpu": "1200m", "memory": "300Mi"}}}
            spec["initContainers"] = [own | random.choice(({}, {"restartPolicy": "Always"}))]
        if random.random() < 0.05:
            spec["overhead"] = {"cpu": "250m", "memory": "160Mi"}
            spec["runtimeClassName"] = "kata"
        if random.random() < 0.05:
            spec["containers"][0]["resources"]["requests"]["ephemeral-storage"] = "20Gi"

    def _selector(self) -> dict[str, str]:
        for _ in range(20):
            found = self._scene.expression()
            if found["operator"] == "In":
                return {found["key"]: found["values"][0]}
        return {ZONE: self._scene.zones[0]}

    def _terms(self, count: int) -> Json:
        random = self._random
        return {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        self._pod_expression() for _ in range(random.choice((1, 1, 2)))
                    ]
                }
                for _ in range(count)
            ]
        }

    def _pod_expression(self) -> Json:
        random = self._random
        if random.random() < 0.02:
            return random.choice(_REFUSED)
        while (found := self._scene.expression())["operator"] in ("Gte", "Lte"):
            pass
        return found

    def _placement(self, app: str) -> dict[str, Any]:
        """One to three of: node affinity, pod affinity, anti-affinity, spread."""
        random = self._random
        affinity: dict[str, Any] = {}
        spec: dict[str, Any] = {}
        for kind in random.sample(("node", "near", "apart", "spread"), random.choice((1, 1, 2, 3))):
            match kind:
                case "node":
                    affinity["nodeAffinity"] = self._node_affinity()
                case "near":
                    affinity["podAffinity"] = self._pod_affinity(app)
                case "apart":
                    affinity["podAntiAffinity"] = self._pod_affinity(app)
                case "spread":
                    constraints = [self._spread(app) for _ in range(random.choice((1, 1, 2)))]
                    spec["topologySpreadConstraints"] = constraints
        return spec | ({"affinity": affinity} if affinity else {})

    def _node_affinity(self) -> Json:
        random = self._random
        found: dict[str, Any] = {}
        if random.random() < 0.6:
            found[_REQUIRED] = self._terms(random.choice((1, 2, 3)))
        if random.random() < 0.6 or not found:
            found[_PREFERRED] = [
                {
                    "weight": random.randint(1, 100),
                    "preference": {"matchExpressions": [self._pod_expression()]},
                }
                for _ in range(random.choice((1, 2, 3)))
            ]
        return found

    def _pod_affinity(self, app: str) -> Json:
        random = self._random
        if random.random() < 0.6:
            return {_REQUIRED: [self._affinity_term(app)]}
        return {
            _PREFERRED: [
                {"weight": random.randint(1, 100), "podAffinityTerm": self._affinity_term(app)}
                for _ in range(random.choice((1, 1, 2)))
            ]
        }

    def _affinity_term(self, app: str) -> Json:
        random = self._random
        found: dict[str, Any] = {
            "topologyKey": random.choice(_TOPOLOGY_KEYS),
            "labelSelector": self._pod_selector(app),
        }
        if random.random() < 0.15:
            found["namespaces"] = random.sample(("default", "red", "blue"), random.choice((1, 2)))
        if random.random() < 0.15:
            choices: tuple[Json, ...] = (
                {}, {"matchLabels": {"env": "prod"}},
                {"matchExpressions": [{"key": "env", "operator": "Exists"}]},
            )  # fmt: skip
            found["namespaceSelector"] = random.choice(choices)
        return found

    def _pod_selector(self, app: str) -> Json:
        random = self._random
        wanted = app if random.random() < 0.6 else random.choice(_APPS)
        if random.random() < 0.8:
            return {"matchLabels": {"app": wanted}}
        operator = random.choice(("In", "NotIn", "Exists"))
        values = {} if operator == "Exists" else {"values": [wanted]}
        return {"matchExpressions": [{"key": "app", "operator": operator, **values}]}

    def _spread(self, app: str) -> Json:
        random = self._random
        found: dict[str, Any] = {
            "maxSkew": random.choice((1, 1, 2, 3)),
            "topologyKey": random.choice(_TOPOLOGY_KEYS),
            "whenUnsatisfiable": random.choice(
                ("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")
            ),
            "labelSelector": self._pod_selector(app),
        }
        if random.random() < 0.2 and found["whenUnsatisfiable"] == "DoNotSchedule":
            found["minDomains"] = random.choice((1, 2, 3, 4))
        if random.random() < 0.15:
            found["matchLabelKeys"] = ["rev"]
        if random.random() < 0.2:
            found["nodeTaintsPolicy"] = random.choice(("Honor", "Ignore"))
        if random.random() < 0.2:
            found["nodeAffinityPolicy"] = random.choice(("Honor", "Ignore"))
        return found
