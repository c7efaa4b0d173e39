"""Topology domains: which count, and what happens where several are equally good."""

from typing import Any

import pytest

from moxwell.scheduling.packing.cluster import SolverOptions
from moxwell.scheduling.packing.solver import Solver
from moxwell.scheduling.requirements import requirement
from moxwell.scheduling.well_known_labels import INSTANCE_TYPE, ZONE
from unit.scheduling.packing_scenes import cluster, instance_type, node, pod, pool

SELECTOR = {"matchLabels": {"app": "web"}}


def spread(key: str = ZONE, soft: bool = False) -> dict[str, Any]:
    rule = {
        "maxSkew": 1, "topologyKey": key, "labelSelector": SELECTOR,
        "whenUnsatisfiable": "ScheduleAnyway" if soft else "DoNotSchedule",
    }  # fmt: skip
    return {"labels": {"app": "web"}, "topologySpreadConstraints": [rule]}


def near(key: str = ZONE) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": SELECTOR}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"labels": {"app": "web"}, "affinity": {"podAffinity": required}}


@pytest.mark.parametrize("kind", [spread(), spread(soft=True), near()])
def test_another_of_several_equal_domains_is_tried_if_the_pod_fits_nowhere(
    kind: dict[str, Any],
) -> None:
    """The pool promises zone "a" too, but only zone "c" has a type that is large enough."""
    types = (instance_type(2, zones=("a",)), instance_type(16, zones=("c",)))
    found = Solver(cluster(pool(instance_types=types))).solve([pod("p", "8", **kind)])
    (claim,) = found.claims
    assert claim.requirements.entries[ZONE].values == {"c"}
    assert not found.failures


def test_the_failure_is_that_of_the_first_domain() -> None:
    types = (instance_type(2, zones=("a", "b")),)
    found = Solver(cluster(pool(instance_types=types))).solve([pod("p", "8", **spread())])
    assert f"{ZONE} In [a]" in str(found.failures["p"])


@pytest.mark.parametrize(("deleting", "placed"), [(False, False), (True, True)])
def test_the_domain_of_a_node_that_is_deleted_does_not_count(deleting: bool, placed: bool) -> None:
    """Zone "b" would have the fewest pods, but its only node is about to be deleted."""
    nodes = (node("n1", zone="a"), node("n2", zone="b", cpu=2, deleting=deleting))
    running = pod("old", on="n1", labels={"app": "web"})
    snapshot = cluster(pool(instance_types=()), nodes=nodes, pods=(running,))
    found = Solver(snapshot).solve([pod("p", "2500m", **spread())])
    assert bool(found.existing.get("n1")) == placed


def test_claims_of_a_pool_share_whether_min_values_was_lowered() -> None:
    least = requirement(INSTANCE_TYPE, "Exists", min_values=3)
    solver = Solver(
        cluster(pool(requirements=(least,))), SolverOptions(best_effort_min_values=True)
    )
    anti: dict[str, Any] = {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": SELECTOR}
                ]
            }
        },
        "labels": {"app": "web"},
    }
    large, small = pod("large", "8", **anti), pod("small", "1", **anti)
    assert [c.min_values_relaxed for c in solver.solve([large]).claims] == [True]
    assert [c.min_values_relaxed for c in solver.solve([large, small]).claims] == [False, False]
