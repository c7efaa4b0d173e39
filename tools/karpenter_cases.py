"""
Answers recorded Karpenter cases: ``karpenter_cases.py --mode exact DIR --out FILE``.

DIR holds case files and ``catalogues.json``, unless the folder above does or ``--catalogues`` names
it. FILE becomes a JSON object from case name to result in the recorded format. A case that cannot
be read is named on the standard error output and left out, and the exit status is 1; fields that
are not known are named too, and not read.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from karpenter_disruption import consolidation_answer
from karpenter_format import InvalidCase, case_name, cases_of, check_case
from karpenter_input import case_input, instance_type, result_json
from moxwell.errors import Invalid
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.packing.optimise import optimised
from moxwell.scheduling.packing.solver import Solver

Json = Mapping[str, Any]
Catalogues = Mapping[str, tuple[InstanceType, ...]]
CATALOGUES = "catalogues"
# what readers raise about content that has another form
UNREADABLE = (Invalid, LookupError, TypeError, ValueError, AttributeError)


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


def checked_answer(case: Json, catalogues: Catalogues, mode: str) -> tuple[Json, tuple[str, ...]]:
    """The answer to a case whose format is checked first, and its fields that are not known."""
    unknown = check_case(case)
    given = case["input"]
    for pool in given.get("nodePools") or ():
        name = pool.get("catalogue") or given.get("catalogue", "")
        if name not in catalogues:
            where = f"case {case['name']}: node pool {pool['name']}"
            raise InvalidCase(f"{where}: there is no catalogue {name!r}")
    try:
        return answer(given, catalogues, mode), unknown
    except UNREADABLE as error:
        text = f"{type(error).__name__}: {error}"
        raise InvalidCase(f"case {case['name']} cannot be read: {text}") from error


def answers_of(folder: Path, catalogues: Catalogues, mode: str) -> tuple[dict[str, Json], bool]:
    """
    The answers to all cases of a folder, and whether every case has one.

    What cannot be read, and what is not known, is said on the standard error output.
    """
    found: dict[str, Json] = {}
    complete = True
    for path in (p for p in json_files(folder) if not is_catalogue(p)):
        try:
            cases = cases_of(read_json(path))
        except (InvalidCase, ValueError, OSError) as error:
            _say(f"{path.name} is left out: {error}")
            complete = False
            continue
        for case in cases:
            try:
                found[case_name(case)], unknown = checked_answer(case, catalogues, mode)
            except InvalidCase as error:
                _say(f"{path.name}: {error}")
                complete = False
                continue
            if unknown:
                _say(f"{path.name}: case {case_name(case)}: not known and not read: {unknown}")
    return found, complete


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mode", choices=("exact", "optimise"), default="exact")
    parser.add_argument("--catalogues", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        parser.error(f"{arguments.folder} is no folder")
    if not any(not is_catalogue(p) for p in json_files(arguments.folder)):
        parser.error(f"{arguments.folder} has no case files (*.json, *.json.gz)")
    source = arguments.catalogues or catalogue_file(arguments.folder)
    try:
        catalogues = load_catalogues(source)
    except (*UNREADABLE, OSError) as error:
        parser.error(f"{source} holds no catalogues: {type(error).__name__}: {error}")
    answers, complete = answers_of(arguments.folder, catalogues, arguments.mode)
    arguments.out.write_text(json.dumps(answers))
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
