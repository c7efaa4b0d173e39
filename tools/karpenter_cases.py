"""
Answers recorded Karpenter cases: ``karpenter_cases.py --mode exact DIR --out FILE``.

DIR holds case files and ``catalogues.json``, unless the folder above does or ``--catalogues`` names
it. FILE becomes a JSON object from case name to result in the recorded format.
"""

import argparse
import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from karpenter_disruption import consolidation_answer
from karpenter_input import case_input, instance_type, result_json
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.packing.optimise import optimised
from moxwell.scheduling.packing.solver import Solver

Json = Mapping[str, Any]
Catalogues = Mapping[str, tuple[InstanceType, ...]]
CATALOGUES = "catalogues"


def read_json(path: Path) -> Any:
    """The content of a file, which may be compressed."""
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)


def load_catalogues(path: Path) -> Catalogues:
    found: dict[str, list[Json]] = read_json(path)
    return {name: tuple(map(instance_type, types)) for name, types in found.items()}


def json_files(folder: Path) -> list[Path]:
    return sorted((*folder.glob("*.json"), *folder.glob("*.json.gz")))


def catalogue_file(folder: Path) -> Path:
    """The catalogues of a folder or of the one above it."""
    found = [p for f in (folder, folder.parent) for p in json_files(f) if is_catalogue(p)]
    if not found:
        raise SystemExit(f"{folder} has no {CATALOGUES}.json: name one with --catalogues")
    return found[0]


def is_catalogue(path: Path) -> bool:
    return path.name.partition(".")[0] == CATALOGUES


def case_files(folder: Path) -> Iterator[tuple[Path, Json]]:
    """The case files of a folder, and what they hold."""
    for path in json_files(folder):
        if not is_catalogue(path):
            yield path, read_json(path)


def answer(case: Json, catalogues: Catalogues, mode: str = "exact") -> Json:
    """The decision for the input of one case."""
    if case.get("kind") == "consolidation":
        return consolidation_answer(case, catalogues, mode)
    given = case_input(case, catalogues)
    solver = Solver(given.snapshot, given.options)
    result = optimised(solver, given.pods) if mode == "optimise" else solver.solve(given.pods)
    return result_json(result, given.refused)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mode", choices=("exact", "optimise"), default="exact")
    parser.add_argument("--catalogues", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    catalogues = load_catalogues(arguments.catalogues or catalogue_file(arguments.folder))
    answers = {
        case["name"]: answer(case["input"], catalogues, arguments.mode)
        for _, file in case_files(arguments.folder)
        for case in file["cases"]
    }
    arguments.out.write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
