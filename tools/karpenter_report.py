"""
Prints what packings cost over all cases: ``karpenter_report.py DIR [DIR ...]``.

The sum of prices in the mode ``optimise`` stands beside genuine Karpenter's and a lower bound that
HiGHS proves (the extra ``solver``). Counted are provisioning cases in which both place the same
pods; where genuine Karpenter varies, its cheapest recorded answer counts.
"""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from karpenter_cases import Catalogues, Json, case_files, catalogue_file, load_catalogues
from karpenter_input import case_input
from moxwell.scheduling.packing.lower_bound import LowerBoundUnavailable, lower_bound
from moxwell.scheduling.packing.optimise import optimised
from moxwell.scheduling.packing.solver import Solver


@dataclass
class PriceSums:
    """Prices of all cases, and of those with a lower bound."""

    cases: int = 0
    others: int = 0
    optimise: float = 0.0
    genuine: float = 0.0
    bounded: int = 0
    optimise_bounded: float = 0.0
    bound: float = 0.0
    reached: int = 0

    def __str__(self) -> str:
        first = (
            f"{self.cases} cases: optimise {self.optimise:.4f}, genuine {self.genuine:.4f} "
            f"({self.others} cases are left out, pods without a node differ)"
        )
        if not self.bounded:
            return f"{first}\nno lower bound: the extra solver is not installed"
        return (
            f"{first}\n{self.bounded} cases with a lower bound: optimise "
            f"{self.optimise_bounded:.4f}, lower bound {self.bound:.4f}, reached in {self.reached}"
        )


def add_case(sums: PriceSums, case: Json, catalogues: Catalogues) -> None:
    """Add one provisioning case."""
    given, expect = case_input(case["input"], catalogues), case["expect"]
    solver = Solver(given.snapshot, given.options)
    found = optimised(solver, given.pods)
    if len(found.failures) + len(given.refused) != least_unscheduled(expect, given.refused):
        sums.others += 1
        return
    sums.cases += 1
    sums.optimise += found.price
    sums.genuine += expect["summary"]["price"][0]
    placed = [p for p in given.pods if p.uid not in found.failures]
    try:
        bound = lower_bound(solver, placed)
    except LowerBoundUnavailable:
        return
    if bound < inf:
        sums.bounded += 1
        sums.optimise_bounded += found.price
        sums.bound += bound
        sums.reached += found.price <= bound + 1e-6


def least_unscheduled(expect: Json, refused: Any) -> int:
    """How many pods genuine Karpenter leaves over at least, with those that it refuses."""
    return int(expect["summary"]["unscheduled"][0]) + len(refused)


def report(folders: Iterable[Path]) -> PriceSums:
    sums = PriceSums()
    for folder in folders:
        catalogues = load_catalogues(catalogue_file(folder))
        for _, file in case_files(folder):
            for case in file["cases"]:
                if case["input"].get("kind") != "consolidation" and case.get("expect"):
                    add_case(sums, case, catalogues)
    return sums


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="+")
    sys.stdout.write(f"{report(parser.parse_args().folder)}\n")


if __name__ == "__main__":
    main()
