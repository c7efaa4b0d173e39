"""The arrays of the solver only skip what cannot fit: without them the decisions are the same."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.scheduling.packing.claim_index import ClaimIndex, Numbers
from moxwell.scheduling.packing.claims import NewClaim
from moxwell.scheduling.packing.existing import ExistingBin
from moxwell.scheduling.packing.existing_index import ExistingNodes
from moxwell.scheduling.packing.pod_classes import PodClass
from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.packing.resource_axis import Vector
from moxwell.scheduling.packing.results import SchedulingResult
from moxwell.scheduling.packing.solver import Solver
from moxwell.scheduling.well_known_labels import HOSTNAME, ZONE
from unit.scheduling.packing_scenes import ZONES, cluster, node, pod, pool


def every_claim(index: ClaimIndex, order: Numbers, _: PodClass) -> Iterator[tuple[int, NewClaim]]:
    yield from ((place, index.claim(n)) for place, n in enumerate(order.tolist()))


def every_node(nodes: ExistingNodes, _: Vector, ignore_hold: bool) -> Iterator[ExistingBin]:
    assert isinstance(ignore_hold, bool)
    yield from nodes.all_bins()


def decisions(found: SchedulingResult) -> tuple[Any, ...]:
    claims = [([p.uid for p in c.pods], c.types, str(c.requirements)) for c in found.claims]
    existing = {n: [p.uid for p in pods] for n, pods in found.existing.items()}
    return claims, existing, {uid: str(f) for uid, f in found.failures.items()}


def constraint(kind: str, key: str, app: str) -> dict[str, Any]:
    selector = {"matchLabels": {"app": app}}
    if kind == "spread":
        rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
        return {"topologySpreadConstraints": [{**rule, "labelSelector": selector}]}
    term = {"labelSelector": selector, "topologyKey": key}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {kind: terms}}


@st.composite
def demands(draw: st.DrawFn) -> list[PodDemand]:
    found = []
    for number in range(draw(st.integers(5, 60))):
        spec: dict[str, Any] = {"labels": {"app": draw(st.sampled_from("xyz"))}}
        kind = draw(st.sampled_from(["", "spread", "podAffinity", "podAntiAffinity"]))
        if kind:
            key = draw(st.sampled_from([ZONE, HOSTNAME]))
            spec |= constraint(kind, key, draw(st.sampled_from("xyz")))
        if draw(st.integers(0, 4)) == 0:
            spec["nodeSelector"] = {ZONE: draw(st.sampled_from(ZONES))}
        found.append(pod(f"p{number:02}", draw(st.sampled_from(["500m", "1500m", "7"])), **spec))
    return found


@settings(max_examples=40, deadline=None)
@given(demands())
def test_skipping_places_does_not_change_a_decision(pods: list[PodDemand]) -> None:
    nodes = (node("n1", zone="a"), node("n2", zone="b", cpu=8))
    snapshot = cluster(pool(limits={"cpu": 200_000}), nodes=nodes)
    found = Solver(snapshot).solve(pods)
    with (
        patch.object(ClaimIndex, "candidates", every_claim),
        patch.object(ExistingNodes, "candidates", every_node),
    ):
        assert decisions(Solver(snapshot).solve(pods)) == decisions(found)
