"""
Checks an answer in the recorded format against its case: which constraints are violated.

Independent of the solver: it reads only the JSON of case, catalogue and answer, and counts anew.
Spread over host names is checked for pods without node selector or affinity, whose groups Karpenter
merges with others.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moxwell.api.quantity import Quantity

Json = Mapping[str, Any]
HOSTNAME = "kubernetes.io/hostname"
EPHEMERAL = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
READINESS = "readiness.k8s.io/"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class CheckedPod:
    name: str
    namespace: str
    manifest: Json

    @property
    def spec(self) -> Json:
        return self.manifest.get("spec") or {}

    @property
    def labels(self) -> Mapping[str, str]:
        return (self.manifest.get("metadata") or {}).get("labels") or {}

    def requests(self) -> dict[str, int]:
        found = {"pods": 10**9}
        for container in self.spec.get("containers") or ():
            amounts = (container.get("resources") or {}).get("requests") or {}
            for name, amount in amounts.items():
                found[name] = found.get(name, 0) + Quantity.parse(amount).nano
        whole = (self.spec.get("resources") or {}).get("requests") or {}
        return found | {name: Quantity.parse(amount).nano for name, amount in whole.items()}

    def ports(self) -> Iterator[tuple[str, int, str]]:
        for container in self.spec.get("containers") or ():
            for port in container.get("ports") or ():
                if port.get("hostPort"):
                    address = port.get("hostIP") or "0.0.0.0"
                    yield address, port["hostPort"], port.get("protocol") or ""


def violations(case: Json, answer: Json, catalogues: Mapping[str, Sequence[Json]]) -> list[str]:
    """The constraints that an answer violates."""
    pods = {
        name: CheckedPod(name, g.get("namespace") or "default", g["pod"])
        for g in case["pods"]
        for name in g["names"]
    }
    bound = [
        (pods[name], node)
        for g in case["pods"]
        for name, node in zip(
            g["names"], g.get("nodeNames") or [g.get("nodeName")] * len(g["names"]), strict=True
        )
        if node
    ]
    found = []
    for claim in answer["claims"]:
        together = [pods[n] for n in claim["pods"]]
        found += [f"{claim['pods'][0]}: {v}" for v in _claim(claim, together, case, catalogues)]
        found += _shared(together)
    for name, names in answer["existing"].items():
        (node,) = (n for n in case["nodes"] if n["name"] == name)
        new = [pods[n] for n in names]
        there = [pod for pod, on in bound if on == name]
        found += [f"{name}: {v}" for v in _node(node, new, there)]
        found += _shared([*there, *new], len(there))
    return found + _each_once(case, answer, pods)


def _each_once(case: Json, answer: Json, pods: Mapping[str, CheckedPod]) -> list[str]:
    placed = [n for c in answer["claims"] for n in c["pods"]]
    placed += [n for names in answer["existing"].values() for n in names]
    placed += [*answer["errors"], *(answer.get("rejected") or ())]
    return [f"{n} is placed twice" for n in set(placed) if placed.count(n) > 1]


def _claim(
    claim: Json, pods: list[CheckedPod], case: Json, catalogues: Mapping[str, Sequence[Json]]
) -> Iterator[str]:
    (pool,) = (p for p in case["nodePools"] if p["name"] == claim["nodePool"])
    types = {t["name"]: t for t in catalogues[pool.get("catalogue") or case["catalogue"]]}
    wanted = {r["key"]: set(r.get("values") or ()) for r in claim["requirements"]
              if r["operator"] == "In"}  # fmt: skip
    for name in claim["instanceTypes"]:
        yield from (f"{name} {v}" for v in _overcommitted(_allocatable(types[name]), pods))
    template = pool["spec"]["template"]["spec"]
    for pod in pods:
        yield from _taints(pod, template.get("taints") or ())
        for key, value in (pod.spec.get("nodeSelector") or {}).items():
            if not (wanted.get(key) or _type_values(types, claim, key)) <= {value}:
                yield f"{pod.name} wants {key}={value}"


def _type_values(types: Mapping[str, Json], claim: Json, key: str) -> set[str]:
    return {
        value
        for name in claim["instanceTypes"]
        for r in types[name]["requirements"]
        if r["key"] == key
        for value in r.get("values") or ()
    }


def _allocatable(each: Json) -> dict[str, int]:
    overhead = {n: Quantity.parse(a).nano for n, a in (each.get("overhead") or {}).items()}
    capacity = {n: Quantity.parse(a).nano for n, a in each["capacity"].items()}
    return {n: a - overhead.get(n, 0) for n, a in capacity.items()}


def _overcommitted(room: Mapping[str, int], pods: list[CheckedPod]) -> Iterator[str]:
    used: dict[str, int] = {}
    for pod in pods:
        for name, amount in pod.requests().items():
            used[name] = used.get(name, 0) + amount
    for name, amount in used.items():
        if amount > room.get(name, 0):
            yield f"has too little {name}"


def _node(node: Json, new: list[CheckedPod], there: list[CheckedPod]) -> Iterator[str]:
    room = {n: Quantity.parse(a).nano for n, a in node["allocatable"].items()}
    yield from _overcommitted(room, [*there, *new])
    passing = {t["key"] for t in node.get("startupTaints") or ()} | EPHEMERAL
    joining = node["state"] in ("launched", "registered")
    taints = [
        t
        for t in node.get("taints") or ()
        if not (joining and (t["key"] in passing or t["key"].startswith(READINESS)))
    ]
    for pod in new:
        yield from _taints(pod, taints)
        for key, value in (pod.spec.get("nodeSelector") or {}).items():
            if node["labels"].get(key) != value:
                yield f"{pod.name} wants {key}={value}"


def _taints(pod: CheckedPod, taints: Sequence[Json]) -> Iterator[str]:
    for taint in taints:
        hard = taint["effect"] != "PreferNoSchedule"
        tolerations = pod.spec.get("tolerations") or ()
        if hard and not any(_tolerates(t, taint) for t in tolerations):
            yield f"{pod.name} does not tolerate {taint['key']}"


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    operator, own, value = (
        toleration.get("operator"), toleration.get("value") or "", taint.get("value") or ""
    )  # fmt: skip
    match operator:
        case "Exists":
            return True
        case "Gt" | "Lt":
            if not (own.isdecimal() and value.isdecimal()):
                return False
            return int(value) > int(own) if operator == "Gt" else int(value) < int(own)
    return bool(own == value)


def _shared(pods: list[CheckedPod], there: int = 0) -> list[str]:
    """
    Host ports, required anti-affinity and spread over host names, of pods on one node.

    Pods are in the order in which they came; a spread constraint binds only pods that have it. What
    is between the first ``there`` pods, which ran already, is not the answer's doing.
    """
    found = []
    for i, one in enumerate(pods):
        others = [o for j, o in enumerate(pods) if j != i and max(i, j) >= there]
        found += [f"{one.name} shares a port" for o in others if _conflict(one, o)]
        found += [
            f"{one.name} must not be with {o.name}"
            for term in _anti_affinity(one)
            for o in others
            if _selects(term, one, o)
        ]
        if i >= there:
            found += _spread(one, pods[: i + 1])
    return found


def _conflict(a: CheckedPod, b: CheckedPod) -> bool:
    return any(
        x[1:] == y[1:] and (x[0] == y[0] or "0.0.0.0" in (x[0], y[0]))
        for x in a.ports()
        for y in b.ports()
    )


def _anti_affinity(pod: CheckedPod) -> list[Json]:
    rules = (pod.spec.get("affinity") or {}).get("podAntiAffinity") or {}
    return [t for t in rules.get(REQUIRED) or () if t["topologyKey"] == HOSTNAME]


def _selects(term: Json, owner: CheckedPod, other: CheckedPod) -> bool:
    """Whether a term selects a pod; terms with a namespace selector are left out."""
    namespaces = term.get("namespaces") or [owner.namespace]
    if term.get("namespaceSelector") is not None or other.namespace not in namespaces:
        return False
    wanted = (term.get("labelSelector") or {}).get("matchLabels")
    return wanted is not None and all(other.labels.get(k) == v for k, v in wanted.items())


def _spread(pod: CheckedPod, together: list[CheckedPod]) -> Iterator[str]:
    """Spread constraints of the last pod that came."""
    if pod.spec.get("nodeSelector") or (pod.spec.get("affinity") or {}).get("nodeAffinity"):
        return
    for rule in pod.spec.get("topologySpreadConstraints") or ():
        is_hard = rule["whenUnsatisfiable"] == "DoNotSchedule"
        if not is_hard or rule["topologyKey"] != HOSTNAME or rule.get("matchLabelKeys"):
            continue
        own = [p for p in together if _selects(rule, pod, p)]
        plain = all(not p.spec.get("nodeSelector") and not p.spec.get("affinity") for p in together)
        if pod in own and plain and len(own) > rule["maxSkew"]:
            yield f"{pod.name} is spread by at most {rule['maxSkew']}"
