"""
The consolidation part of the autoscaler's benchmark: the same nodes for both sides.

``multi``: nodes with three small pods each, many of which can go. ``single``: full nodes, so that a
single-node pass looks at every node. The catalogue is that of the recorded decisions.
"""

import copy
import json
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from karpenter_cases import load_catalogues, read_json
from karpenter_disruption import disruption_snapshot
from moxwell.scheduling.disruption.methods import ConsolidationMethod, ConsolidationPass
from moxwell.scheduling.well_known_labels import (
    CAPACITY_TYPE,
    HOSTNAME,
    INSTANCE_TYPE,
    NODE_POOL,
    REGION,
    ZONE,
)

CATALOGUES = Path(__file__).parents[1] / "tests/conformance/karpenter/cases" / "catalogues.json.gz"
CATALOGUE = "pve8-od"
TYPES = {"multi": "s1.4VCPU-16GB", "single": "c1.4VCPU-8GB"}
PODS = {
    "multi": (("250m", "512Mi"), ("250m", "1024Mi"), ("500m", "512Mi")),
    "single": (("3500m", "4096Mi"), ("300m", "512Mi")),
}
LEAST_RATIO = {"single": 50.0, "multi": 1.0}
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
Json = dict[str, Any]


@dataclass(frozen=True)
class PassFigures:
    """One pass: processor seconds with preparation, candidates, what was decided, memory."""

    cpu: float
    candidates: int
    command: str
    mebibytes: int


def instance_types() -> list[Json]:
    found: list[Json] = read_json(CATALOGUES)[CATALOGUE]
    return found


def nodes(method: str, count: int) -> Iterator[Json]:
    """Initialized nodes over eight hosts with their pods."""
    kind = next(t for t in instance_types() if t["name"] == TYPES[method])
    memory = int(kind["capacity"]["memory"][:-2]) * 1024 - 548
    free = {**kind["capacity"], "cpu": "3890m", "memory": f"{memory}Mi"}
    single = {
        r["key"]: r["values"][0]
        for r in kind["requirements"]
        if r["operator"] == "In" and len(r["values"]) == 1
    }
    for number in range(count):
        host, name = number % 8 + 1, f"node-{number:04d}"
        labels = {
            **single, HOSTNAME: name, ZONE: f"pve{host}", CAPACITY_TYPE: "on-demand",
            REGION: "east" if host % 2 else "west", INSTANCE_TYPE: kind["name"],
            NODE_POOL: "default",
        }  # fmt: skip
        yield {
            "name": name, "labels": labels, "capacity": kind["capacity"], "allocatable": free,
            "pods": list(_pods(method, number, count)),
        }  # fmt: skip


def _pods(method: str, number: int, count: int) -> Iterator[Json]:
    """The first pod's deletion cost differs by node, so that the order of candidates is fixed."""
    for place, (cpu, memory) in enumerate(PODS[method]):
        cost = {DELETION_COST: str(number * 7919 % count * 100_000)} if place == 0 else {}
        requests = {"cpu": cpu, "memory": memory}
        yield {
            "metadata": {"name": f"{'abc'[place]}-{number:04d}", "annotations": cost},
            "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
        }


def case(method: str, count: int) -> Json:
    """The nodes as a case of the recorded format."""
    made, pods = [], []
    for node in nodes(method, count):
        pods += [
            {"names": [p["metadata"]["name"]], "nodeName": node["name"], "pod": copy.deepcopy(p)}
            for p in node.pop("pods")
        ]
        made.append({**node, "state": "initialized"})
    disruption = {
        "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s",
        "budgets": [{"nodes": "100%"}],
    }  # fmt: skip
    spec = {"template": {"spec": {"requirements": []}}, "disruption": disruption}
    return {
        "kind": "consolidation", "catalogue": CATALOGUE, "nodes": made, "pods": pods,
        "nodePools": [{"name": "default", "spec": spec}],
    }  # fmt: skip


def ours(method: str, count: int) -> PassFigures:
    snapshot = disruption_snapshot(case(method, count), load_catalogues(CATALOGUES))
    start = time.process_time()
    found = ConsolidationPass(snapshot).outcome(ConsolidationMethod(method))
    cpu = time.process_time() - start
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    command, text = found.command, "none"
    if command is not None:
        moved, created = len(command.candidates), len(command.replacements)
        text = f"{command.decision} {moved} nodes, create {created}"
    return PassFigures(cpu, len(found.candidates), text, rss)


def genuine(program: Path, method: str, count: int) -> PassFigures:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        given = {"types": instance_types(), "nodes": list(nodes(method, count)), "method": method}
        json.dump(given, file)
        file.flush()
        out = subprocess.run([program, file.name], capture_output=True, text=True, check=True)
    return PassFigures(**json.loads(out.stdout))


def show(who: str, method: str, count: int, found: PassFigures) -> None:
    print(
        f"{who:8} {method} pass over {count:,} nodes: {found.cpu:.2f} CPU seconds, "
        f"{found.candidates:,} candidates, {found.command}, {found.mebibytes} MiB",
        flush=True,
    )


def meets_target(method: str, own: PassFigures, theirs: PassFigures) -> bool:
    """Whether both decide the same and ours is fast enough."""
    least, ratio = LEAST_RATIO[method], theirs.cpu / own.cpu
    print(f"{method:8} ratio {ratio:.1f} (at least {least:g})", flush=True)
    same = (own.candidates, own.command) == (theirs.candidates, theirs.command)
    return same and ratio >= least
