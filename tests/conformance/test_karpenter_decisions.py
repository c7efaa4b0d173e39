"""Decisions of genuine Karpenter, recorded in ``karpenter/cases``, against the solver's."""

import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from karpenter_cases import (
    Catalogues,
    answer,
    catalogue_file,
    is_catalogue,
    json_files,
    load_catalogues,
    read_json,
)
from karpenter_checker import violations
from moxwell.scheduling.disruption.methods import ConsolidationMethod
from moxwell.scheduling.disruption.search import SearchOptions

HERE = Path(__file__).parent / "karpenter"
CASES = HERE / "cases"
FOLDERS = (CASES, CASES / "varying", CASES / "generated")
GROUPS = [p for folder in FOLDERS for p in json_files(folder) if not is_catalogue(p)]
HOST_NAME = "kubernetes.io/hostname"  # texts about it name placeholders


def name_of(path: Path) -> str:
    return str(path.relative_to(CASES)).removesuffix(".json.gz")


@cache
def comparison() -> Callable[[Any, Any], list[str]]:
    spec = importlib.util.spec_from_file_location("karpenter_compare", HERE / "compare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[Any, Any], list[str]] = module.compare
    return found


@cache
def catalogues() -> Catalogues:
    return load_catalogues(catalogue_file(CASES))


def provisioning_groups() -> list[Path]:
    return [p for p in GROUPS if not p.name.startswith("consolidation")]


@pytest.mark.parametrize("path", GROUPS, ids=name_of)
def test_every_recorded_decision_agrees(path: Path) -> None:
    compare = comparison()
    found = {}
    for case in read_json(path)["cases"]:
        got = answer(case["input"], catalogues())
        differences = (
            compare(case, got)
            or texts_that_differ(case["expect"], got)
            or budgets_and_candidates_that_differ(case, got)
        )
        if differences:
            found[case["name"]] = differences[0][:400]
    assert found == {}


def texts_that_differ(expect: Any, got: Any) -> list[str]:
    """Messages of an exact answer that differ from Karpenter's, but for placeholder names."""
    if expect["level"] != "exact" or expect.get("textsVary"):
        return []
    return [
        f"{pod}: wanted {text!r} got {got[kind][pod]!r}"
        for kind in ("errors", "rejected")
        for pod, text in (expect["result"].get(kind) or {}).items()
        if HOST_NAME not in text and got[kind][pod] != text
    ]


def budgets_and_candidates_that_differ(case: Any, got: Any) -> list[str]:
    """Budgets, prices and disruption costs of an exact answer that differ from Karpenter's."""
    expect = case["expect"]
    if case["input"].get("kind") != "consolidation" or expect["level"] != "exact":
        return []
    return [
        f"{method}: wanted {want['budget']} {want['candidates']} got {got[method]}"
        for method, want in expect["result"].items()
        if want["budget"] != got[method]["budget"] or rounded(want) != rounded(got[method])
    ]


def rounded(outcome: Any) -> dict[str, tuple[float, float]]:
    return {
        c["name"]: (round(c["price"], 6), round(c["disruptionCost"], 6))
        for c in outcome["candidates"]
    }


def test_an_answer_does_not_depend_on_earlier_answers_or_on_the_order_of_pods() -> None:
    for case in read_json(CASES / "combined.json.gz")["cases"][:6]:
        given = case["input"]
        turned = {**given, "pods": given["pods"][::-1]}
        assert answer(given, catalogues())["claims"] == answer(turned, catalogues())["claims"]


@pytest.mark.parametrize("path", provisioning_groups(), ids=name_of)
def test_optimised_packing_holds_all_constraints_and_is_never_dearer(path: Path) -> None:
    found = {}
    known = read_json(catalogue_file(CASES))
    for case in read_json(path)["cases"]:
        got = answer(case["input"], catalogues(), "optimise")
        wrong = violations(case["input"], got, known) or dearer(case["expect"], got)
        if wrong:
            found[case["name"]] = wrong[:2]
    assert found == {}


def consolidation_groups() -> list[Path]:
    return [p for p in GROUPS if p.name.startswith("consolidation")]


@pytest.mark.parametrize("path", consolidation_groups(), ids=name_of)
def test_optimised_consolidation_holds_all_constraints_and_is_worth_as_much(path: Path) -> None:
    found = {}
    known = read_json(catalogue_file(CASES))
    for case in read_json(path)["cases"]:
        exact = answer(case["input"], catalogues())
        got = answer(case["input"], catalogues(), "optimise")
        least = max(worth(exact[method]) for method in ConsolidationMethod) - 1e-9
        wrong = [] if worth(got["multi"]) >= least else ["worse"]
        for command in got["multi"]["commands"]:
            wrong += misplaced(case["input"], command)
            result = {
                "claims": command["replacements"], "existing": command["existing"], "errors": {},
            }  # fmt: skip
            wrong += violations(case["input"], result, known)
        if wrong:
            found[case["name"]] = wrong[:2]
    assert found == {}


def worth(outcome: Any) -> float:
    """What the command of a method saves beyond the price of its disruption; empty nodes aside."""
    costs = {c["name"]: c["disruptionCost"] for c in outcome["candidates"]}
    price = SearchOptions().price_per_cost
    return max(
        (
            c["savings"] - price * sum(costs[n] for n in c["candidates"])
            for c in outcome["commands"]
            if any(costs[n] > 1 for n in c["candidates"])
        ),
        default=0.0,
    )


def misplaced(case: Any, command: Any) -> list[str]:
    """Pods of removed nodes that have no place on a node that stays or on a new one."""
    gone = set(command["candidates"])
    placed = {n for r in command["replacements"] for n in r["pods"]}
    placed |= {n for node, names in command["existing"].items() if node not in gone for n in names}
    return [
        f"{name} has no place"
        for group in case["pods"]
        for name, node in zip(
            group["names"],
            group.get("nodeNames") or [group.get("nodeName")] * len(group["names"]),
            strict=True,
        )
        if node in gone and name not in placed and is_moved(group)
    ]


def is_moved(group: Any) -> bool:
    """Whether pods need another node; of those that end only the ones of a StatefulSet do."""
    owner = group.get("owner")
    if group.get("terminating"):
        return bool(owner == "StatefulSet")
    return owner not in ("DaemonSet", "Node")


def dearer(expect: Any, got: Any) -> list[str]:
    """What is worse than the recorded answer: the price, or a pod that is left over."""
    summary = expect["summary"]
    price = sum(c["price"] for c in got["claims"])
    wrong = []
    if price > summary["price"][1] + 1e-6:
        wrong.append(f"price {price} above {summary['price'][1]}")
    if len(got["errors"]) > summary["unscheduled"][1]:
        wrong.append(f"{len(got['errors'])} left over")
    if expect["level"] == "exact" and not set(got["errors"]) <= set(expect["result"]["errors"]):
        wrong.append("a pod is left over that Karpenter places")
    return wrong


def test_the_checker_finds_violations_in_a_packing_that_ignores_constraints() -> None:
    """All pods of a claim doubled onto the cheapest small type: the checker must object."""
    case = read_json(CASES / "host-ports.json.gz")["cases"][0]
    got = answer(case["input"], catalogues())
    merged = {**got["claims"][0], "pods": [n for c in got["claims"] for n in c["pods"]]}
    bad = {**got, "claims": [merged], "existing": {}}
    assert violations(case["input"], bad, read_json(catalogue_file(CASES)))
