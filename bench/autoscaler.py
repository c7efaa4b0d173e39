"""
Benchmark of the autoscaler's solver beside Karpenter's, on Karpenter's own scheduling benchmark.

Run: ``PYTHONPATH=tools python bench/autoscaler.py [--pods 1000] [--nodes 1000] [--no-genuine]``

The input is 400 instance types and a mix of plain, spread, affinity and anti-affinity pods. The
genuine scheduler (one worker, its faster setting) is built from the Go module registry and runs
over the same input in the same run; both sides are compared by processor seconds of solving alone.
Above 20,000 pods, where Karpenter's own benchmark ends, only our side runs, and its time must grow
about as much as the pods. Both sides also make a pass of consolidation over ``--nodes`` nodes; its
preparation counts on both sides.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import autoscaler_consolidation as consolidation
from autoscaler_consolidation import PassFigures

from envtest import locate
from envtest.install import find_go
from moxwell.scheduling.packing.cluster import ClusterSnapshot, ProvisioningPool
from moxwell.scheduling.packing.instance_types import InstanceType, Offering
from moxwell.scheduling.packing.optimise import optimised
from moxwell.scheduling.packing.pod_parsing import pod_shape, pool_requirements
from moxwell.scheduling.packing.pods import PodDemand, PodShape, pairs
from moxwell.scheduling.packing.solver import Solver
from moxwell.scheduling.resource_lists import offered, requested
from moxwell.scheduling.well_known_labels import (
    CAPACITY_TYPE,
    HOSTNAME,
    KARPENTER_LABELS,
    ZONE,
    LabelRules,
)

VERSION = "v1.14.1"
GENUINE = Path(__file__).with_name("autoscaler_genuine")
RULES = LabelRules(well_known=KARPENTER_LABELS | {"size", "special", "integer"})
LIMIT = 10_000_000  # of the node pool: CPUs, and GiB of memory
MOST_GENUINE = 20_000  # pods of Karpenter's own benchmark, the most that its limits hold
MOST_GROWTH = 1.5  # of the time per pod, from 20,000 pods on
KINDS = ("generic", "spread-zone", "spread-host", "affinity", "anti")
CPU, MEMORY = (100, 250, 500, 1000, 1500), (100, 256, 512, 1024, 2048, 4096)
LEAST_RATIOS = {1_000: 10.0, 20_000: 20.0}
MOST_PRICE = 1.02  # of exact: the choice among equally empty zones moves the price by about 1 %
Json = dict[str, Any]


@dataclass(frozen=True)
class Figures:
    """One run: processor seconds, nodes, price, pods without a node, memory."""

    cpu: float
    nodes: int
    price: float
    unscheduled: int
    mebibytes: int

    def rate(self, pods: int) -> float:
        return pods / self.cpu


def instance_types(count: int = 400) -> list[Json]:
    """The instance types of Karpenter's fake provider."""
    return [_instance_type(i + 1) for i in range(count)]


def _instance_type(cpu: int) -> Json:
    small = cpu <= 4
    price = 0.1 * cpu + 0.1 * (2 * cpu * 2**30) / 1e9
    zones = ["test-zone-1", "test-zone-2", "test-zone-3"]
    where = [(z, "spot") for z in zones[:2]] + [(z, "on-demand") for z in zones]
    values = {
        "integer": [str(cpu)],
        CAPACITY_TYPE: ["on-demand", "spot"],
        "kubernetes.io/arch": ["amd64"],
        "kubernetes.io/os": ["darwin", "linux", "windows"],
        "node.kubernetes.io/instance-type": [f"fake-it-{cpu - 1}"],
        "size": ["small" if small else "large"],
        ZONE: zones,
    }
    requirements = [{"key": k, "operator": "In", "values": v} for k, v in values.items()]
    special: Json = {"key": "special", "operator": "DoesNotExist"}
    if not small:
        special = {"key": "special", "operator": "In", "values": ["optional"]}
    return {
        "name": f"fake-it-{cpu - 1}",
        "capacity": {"cpu": str(cpu), "memory": f"{2 * cpu}Gi", "pods": str(10 * cpu)},
        "overhead": {"cpu": "100m", "memory": "10Mi"},
        "requirements": [*requirements, special],
        "offerings": [{"zone": z, "capacityType": c, "price": price} for z, c in where],
    }


def draws() -> Iterator[int]:
    """Random numbers of a generator that any language can follow."""
    state = 42
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        yield state >> 33


def pods(count: int) -> list[Json]:
    """A fifth of each kind, the rest plain."""
    numbers = draws()

    def value() -> str:
        return "abcdefg"[next(numbers) % 7]

    kinds = [k for k in KINDS for _ in range(count // 5)]
    kinds += ["generic"] * (count - len(kinds))
    return [_pod(i, kind, value, numbers) for i, kind in enumerate(kinds)]


def _pod(number: int, kind: str, value: Any, numbers: Iterator[int]) -> Json:
    labels, spec = _constraints(kind, value)
    cpu, memory = CPU[next(numbers) % 5], MEMORY[next(numbers) % 6]
    requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
    spec["containers"] = [{"name": "c", "resources": {"requests": requests}}]
    uid = f"{number * 2654435761 % 2**32:08x}-{number:05d}"
    name = f"pod-{number:05d}"
    meta = {"name": name, "namespace": "default", "uid": uid, "labels": labels}
    return {"metadata": meta, "spec": spec}


def _constraints(kind: str, value: Any) -> tuple[dict[str, str], Json]:
    if kind == "generic":
        return {"my-label": value()}, {}
    if kind.startswith("spread"):
        labels, selector = {"my-label": value()}, {"matchLabels": {"my-label": value()}}
        key = ZONE if kind == "spread-zone" else HOSTNAME
        spread = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
        return labels, {"topologySpreadConstraints": [{**spread, "labelSelector": selector}]}
    near = kind == "affinity"
    labels = {"my-affininity": value()} if near else {"app": "nginx"}
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": ZONE if near else HOSTNAME}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return labels, {"affinity": {"podAffinity" if near else "podAntiAffinity": terms}}


def limits(count: int) -> dict[str, str]:
    """
    The limits of the node pool: those of Karpenter's benchmark, in proportion to more pods.

    A new node is charged with the largest type that it may become, 800 GiB, so that the limit of
    the benchmark ends at 12,500 nodes.
    """
    most = LIMIT * max(1, -(-count // MOST_GENUINE))
    return {"cpu": f"{most}", "memory": f"{most}Gi"}


def solver_pool(types: Sequence[Json], count: int) -> ProvisioningPool:
    found = tuple(
        InstanceType(
            t["name"],
            offered(t["capacity"]),
            requested(t["overhead"]),
            pool_requirements(t["requirements"]),
            tuple(
                Offering(pairs({ZONE: o["zone"], CAPACITY_TYPE: o["capacityType"]}), o["price"])
                for o in t["offerings"]
            ),
        )
        for t in types
    )
    return ProvisioningPool("default", found, limits=offered(limits(count)))


def demands(manifests: Sequence[Json]) -> list[PodDemand]:
    """Pods with shared shapes, as a cache of pods has them."""
    shapes: dict[str, PodShape] = {}
    found = []
    for each in manifests:
        key = json.dumps((each["metadata"]["labels"], each["spec"]), sort_keys=True)
        if key not in shapes:
            shapes[key] = pod_shape(each)
        found.append(PodDemand(each["metadata"]["uid"], each["metadata"]["name"], shapes[key]))
    return found


def ours(count: int, mode: str) -> Figures:
    solver = Solver(ClusterSnapshot((solver_pool(instance_types(), count),), rules=RULES))
    demand = demands(pods(count))
    start = time.process_time()
    found = optimised(solver, demand) if mode == "optimise" else solver.solve(demand)
    cpu = time.process_time() - start
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return Figures(cpu, len(found.claims), found.price, len(found.failures), rss)


def build_genuine() -> Path:
    """The genuine scheduler as a program, built once per version of it and of the driver."""
    folder = locate.cache() / f"karpenter-solver-{VERSION}"
    program, sources = folder / "genuine", sorted(GENUINE.glob("*.go"))
    if program.exists() and all(_is_same(each, folder / each.name) for each in sources):
        return program
    folder.mkdir(parents=True, exist_ok=True)
    for each in sources:
        shutil.copy(each, folder)
    require = f"sigs.k8s.io/karpenter {VERSION}"
    (folder / "go.mod").write_text(f"module genuine\n\ngo 1.26.0\n\nrequire {require}\n")
    go = find_go()
    go.run("mod", "tidy", cwd=folder)
    go.run("build", "-o", str(program), ".", cwd=folder)
    return program


def _is_same(source: Path, copy: Path) -> bool:
    return copy.exists() and copy.read_text() == source.read_text()


def genuine(program: Path, count: int) -> Figures:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"types": instance_types(), "pods": pods(count)}, file)
        file.flush()
        out = subprocess.run([program, file.name], capture_output=True, text=True, check=True)
    return Figures(**json.loads(out.stdout))


def apart(count: int, mode: str) -> Any:
    """Our side in a process of its own, so that its memory is its own."""
    command = [sys.executable, __file__, "--ours", str(count), "--mode", mode]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(out.stdout)


def show(who: str, count: int, found: Figures) -> None:
    print(
        f"{who:8} {count:7,} pods: {found.rate(count):8,.0f} pods per CPU second, "
        f"{found.nodes:,} nodes, price {found.price:,.2f}, {found.unscheduled} left over, "
        f"{found.mebibytes} MiB",
        flush=True,
    )


def compare(count: int, program: Path | None, grown: "Growth") -> bool:
    own, cheaper = (Figures(**apart(count, mode)) for mode in ("exact", "optimise"))
    show("exact", count, own)
    show("optimise", count, cheaper)
    linear = grown.is_small(count, own, cheaper)
    if program is None or count > MOST_GENUINE:
        return linear and cheaper.price <= own.price and own.unscheduled + cheaper.unscheduled == 0
    theirs = genuine(program, count)
    show("genuine", count, theirs)
    least = LEAST_RATIOS.get(count, 1.0)
    fast, slower = own.rate(count) / theirs.rate(count), cheaper.rate(count) / theirs.rate(count)
    dearer, price = own.price / theirs.price, cheaper.price / theirs.price
    print(f"exact    ratio {fast:.1f} (at least {least:g}), price ratio {dearer:.4f}")
    print(f"optimise ratio {slower:.1f} (at least {least:g}), price ratio {price:.4f} (at most 1)")
    placed = max(own.unscheduled, cheaper.unscheduled) <= theirs.unscheduled
    return min(fast, slower) >= least and dearer <= MOST_PRICE and price <= 1.0 and placed


class Growth:
    """How much the time per pod grows from the largest input that both sides run."""

    def __init__(self) -> None:
        self._from: tuple[Figures, ...] = ()

    def is_small(self, count: int, *found: Figures) -> bool:
        if count == MOST_GENUINE:
            self._from = found
        if not self._from or count <= MOST_GENUINE:
            return True
        pairs = zip(self._from, found, strict=True)
        ratios = [before.rate(MOST_GENUINE) / after.rate(count) for before, after in pairs]
        shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"time per pod, {MOST_GENUINE:,} to {count:,} pods: {shown} (at most {MOST_GROWTH})")
        return max(ratios) <= MOST_GROWTH


def compare_consolidation(method: str, count: int, program: Path | None) -> bool:
    own = PassFigures(**apart(count, method))
    consolidation.show("ours", method, count, own)
    if program is None:
        return True
    theirs = consolidation.genuine(program, method, count)
    consolidation.show("genuine", method, count, theirs)
    return consolidation.meets_target(method, own, theirs)


def run_ours(count: int, mode: str) -> str:
    found = consolidation.ours(mode, count) if mode in consolidation.PODS else ours(count, mode)
    return json.dumps(found.__dict__)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, nargs="+", default=[1, 100, 1_000, 5_000, 20_000])
    parser.add_argument("--nodes", type=int, nargs="*", default=[1_000])
    parser.add_argument("--no-genuine", action="store_true")
    parser.add_argument("--ours", type=int)
    parser.add_argument(
        "--mode", default="exact", choices=("exact", "optimise", *consolidation.PODS)
    )
    arguments = parser.parse_args()
    if arguments.ours is not None:
        print(run_ours(arguments.ours, arguments.mode))
        return 0
    program = None if arguments.no_genuine else build_genuine()
    grown = Growth()
    met = [compare(count, program, grown) for count in sorted(arguments.pods)]
    passes = [(m, n) for n in arguments.nodes for m in consolidation.PODS]
    met += [compare_consolidation(method, count, program) for method, count in passes]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
