"""``tools/karpenter_cases.py`` on folders that are not as expected: a clear answer each time."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CATALOGUES = ROOT / "tests/conformance/karpenter/cases/catalogues.json.gz"
POOL = {"name": "p", "spec": {"template": {"spec": {}}}}


def pods(cpu: str = "1") -> list[dict[str, Any]]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return [{"names": ["a"], "pod": {"spec": {"containers": containers}}}]


def case(name: str = "x", **given: Any) -> dict[str, Any]:
    known = {"catalogue": "pve2-small", "nodePools": [POOL], "pods": pods()}
    return {"name": name, "input": known | given}


def run(
    folder: Path, *cases: Mapping[str, Any], mode: str = "exact"
) -> tuple[int, str, dict[str, Any]]:
    """The exit status, what is said, and the answers."""
    if cases:
        (folder / "cases.json").write_text(json.dumps({"group": "g", "cases": cases}))
    out = folder.parent / "answers.json"
    tool = f"{ROOT / 'tools/karpenter_cases.py'}"
    command = [sys.executable, tool, f"{folder}", "--out", f"{out}"]
    command += ["--catalogues", f"{CATALOGUES}", "--mode", mode]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr, json.loads(out.read_text()) if out.exists() else {}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "cases"
    found.mkdir()
    return found


@pytest.mark.parametrize("mode", ["exact", "optimise"])
def test_unknown_fields_are_named_and_the_case_is_answered(folder: Path, mode: str) -> None:
    given = case(surprise={"a": 1}, pods=[pods()[0] | {"weight": 3}])
    status, said, answers = run(folder, given | {"weird": True}, mode=mode)
    assert status == 0
    for name in ("$.weird", "$.input.surprise", "$.input.pods[0].weight"):
        assert name in said
    assert [c["pods"] for c in answers["x"]["claims"]] == [["a"]]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"name": "x"}, "missing required field `input`"),
        (case(catalogue="none"), "there is no catalogue 'none'"),
        (case(catalogue=""), "there is no catalogue ''"),
        (case(nodePools=[{"name": "p", "spec": {}}]), "KeyError: 'template'"),
        (case(pods=[{"names": "a", "pod": {}}]), "$.input.pods[0].names"),
        (case(pods=pods("much")), "'much' is not a quantity"),
        (case(kind="static"), "Invalid enum value 'static' - at `$.input.kind`"),
        (case(nodes=[{"name": "n", "state": "unheard"}]), "$.input.nodes[0].state"),
    ],
)
def test_a_case_that_cannot_be_read_is_named_and_the_others_are_answered(
    folder: Path, wrong: dict[str, Any], text: str
) -> None:
    status, said, answers = run(folder, wrong, case("good"))
    assert status == 1
    assert text in said
    assert set(answers) == {"good"}


def test_absent_and_null_parts_of_a_case_are_empty(folder: Path) -> None:
    status, said, answers = run(
        folder, case(nodes=None, pods=None, options=None), {"name": "y", "input": {}}
    )
    assert (status, said) == (0, "")
    assert answers == {name: {"claims": [], "existing": {}, "errors": {}} for name in ("x", "y")}


def test_a_folder_without_cases_and_files_that_hold_none_are_named(folder: Path) -> None:
    status, said, _ = run(folder)
    assert status == 2
    assert "has no case files" in said
    (folder / "broken.json").write_text("{")
    (folder / "list.json").write_text("[1]")
    status, said, answers = run(folder, case())
    assert status == 1
    assert "broken.json is left out" in said
    assert "list.json is left out" in said
    assert set(answers) == {"x"}
    status, said, _ = run(folder.parent / "none")
    assert status == 2
    assert "is no folder" in said
