"""
Answers recorded Karpenter cases: ``karpenter_cases.py --mode exact DIR --out FILE``.

DIR holds ``catalogues.json`` and case files; FILE becomes a JSON object from case name to result in
the recorded format. ``--catalogues`` names another catalogue file.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from karpenter_input import case_input, instance_type, result_json
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.packing.solver import Solver

Json = Mapping[str, Any]
Catalogues = Mapping[str, tuple[InstanceType, ...]]
CATALOGUES = "catalogues.json"


def load_catalogues(path: Path) -> Catalogues:
    found: dict[str, list[Json]] = json.loads(path.read_text())
    return {name: tuple(map(instance_type, types)) for name, types in found.items()}


def case_files(folder: Path) -> Iterator[tuple[Path, Json]]:
    """The case files of a folder, and what they hold."""
    for path in sorted(folder.glob("*.json")):
        if path.name != CATALOGUES:
            yield path, json.loads(path.read_text())


def answer(case: Json, catalogues: Catalogues) -> Json:
    """The decision for the input of one case."""
    given = case_input(case, catalogues)
    result = Solver(given.snapshot, given.options).solve(given.pods)
    return result_json(result, given.refused)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mode", choices=("exact",), default="exact")
    parser.add_argument("--catalogues", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    catalogues = load_catalogues(arguments.catalogues or arguments.folder / CATALOGUES)
    answers = {
        case["name"]: answer(case["input"], catalogues)
        for _, file in case_files(arguments.folder)
        for case in file["cases"]
        if case["input"].get("kind") != "consolidation"
    }
    arguments.out.write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
