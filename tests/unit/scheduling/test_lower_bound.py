"""The lower bound of HiGHS: tables, and that no packing is cheaper than the bound."""

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from karpenter_cases import answer, catalogue_file, load_catalogues, read_json
from karpenter_input import case_input
from moxwell.scheduling.packing.lower_bound import (
    LowerBoundUnavailable,
    lower_bound,
    relaxed_packing,
)
from moxwell.scheduling.packing.optimise import optimised
from moxwell.scheduling.packing.pods import PodDemand
from moxwell.scheduling.packing.solver import Solver
from test_karpenter_decisions import CASES
from unit.scheduling.packing_scenes import ZONES, cluster, pod

APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
        ]
    }
}


def solver() -> Solver:
    return Solver(cluster())


@pytest.mark.parametrize(
    ("pods", "bound"),
    [
        ([], 0.0),
        ([pod("a", "1")], 0.2),
        ([pod("a", "3")], 0.4),
        ([pod(f"p{i}", "1", labels={"app": "web"}, affinity=APART) for i in range(3)], 0.6),
        ([pod("a", "99")], float("inf")),
        ([pod("a", "1", nodeSelector={"topology.kubernetes.io/zone": ZONES[0]})], 0.2),
    ],
    ids=["none", "small", "larger", "apart", "too large", "zone"],
)
def test_the_bound_of_small_batches(pods: list[PodDemand], bound: float) -> None:
    assert lower_bound(solver(), pods) == pytest.approx(bound)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["250m", "900m", "1500m", "3", "7"]), max_size=20), st.booleans())
def test_no_packing_is_cheaper_than_the_bound(cpus: list[str], apart: bool) -> None:
    more: dict[str, Any] = {"affinity": APART} if apart else {}
    pods = [pod(f"p{i:02}", c, labels={"app": "web"}, **more) for i, c in enumerate(cpus)]
    found = lower_bound(solver(), pods)
    assert found <= optimised(solver(), pods).price + 1e-6
    assert found == lower_bound(solver(), pods)


@pytest.mark.parametrize("group", ["sizes", "existing", "daemonsets", "taints", "anti-affinity"])
def test_no_recorded_decision_is_cheaper_than_the_bound(group: str) -> None:
    catalogues = load_catalogues(catalogue_file(CASES))
    for case in read_json(CASES / f"{group}.json.gz")["cases"][:8]:
        given_ = case_input(case["input"], catalogues)
        recorded = case["expect"]["result"]
        placed = [p for p in given_.pods if p.uid not in recorded["errors"]]
        bound = lower_bound(Solver(given_.snapshot, given_.options), placed)
        assert bound <= sum(c["price"] for c in recorded["claims"]) + 1e-6, case["name"]


def test_packing_works_without_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(LowerBoundUnavailable, match=r"moxwell\[solver\]"):
        lower_bound(solver(), [pod("a", "1")])
    case = read_json(CASES / "sizes.json.gz")["cases"][0]
    assert answer(case["input"], load_catalogues(catalogue_file(CASES)), "optimise")["claims"]


def test_the_types_that_highs_would_buy_make_a_case_cheaper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = read_json(CASES / "daemonsets.json.gz")["cases"]
    case = next(c for c in cases if c["name"] == "daemonsets-44d-24")
    catalogues = load_catalogues(catalogue_file(CASES))
    guided, again = (answer(case["input"], catalogues, "optimise") for _ in range(2))
    assert guided == again
    monkeypatch.setitem(sys.modules, "highspy", None)
    plain = answer(case["input"], catalogues, "optimise")
    before, after = (sum(c["price"] for c in each["claims"]) for each in (plain, guided))
    assert after < before - 1e-6
    assert guided["errors"].keys() <= plain["errors"].keys()


def test_a_model_with_too_many_variables_is_not_solved() -> None:
    pods = [pod("a", "1"), pod("b", "3")]
    assert relaxed_packing(solver(), pods, most_variables=2) is None
    found = relaxed_packing(solver(), pods)
    assert found is not None
    assert found.bound == pytest.approx(lower_bound(solver(), pods))
    assert found.wanted
