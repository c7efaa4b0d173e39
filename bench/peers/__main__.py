"""
``python -m peers [--machines N] [--nodes N] [--volumes N] [scenario …]``: compare with peers.

Builds the peers of the scenarios if they are missing and runs each scenario with the peer and with
Moxwell, one after the other. Exits with 1 if the simulator answers a request with 501, or if
Moxwell leaves something behind. Without a module registry nothing is run, and a message says so.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import MappingProxyType

from envtest import locate
from envtest.__main__ import run as install
from moxwell.runtime import log
from peers import bytecode
from peers.autoscaler import run_autoscaler
from peers.figures import Run
from peers.machines import run_machines
from peers.nodes import run_nodes
from peers.report import machine, report
from peers.volumes import run_volumes

PROGRAMS = MappingProxyType(
    {
        "machines": "capmox",
        "nodes": "proxmox-ccm",
        "volumes": "proxmox-csi-controller",
        "autoscaler": "karpenter-proxmox",
    }
)
Scenario = Callable[[Path], Iterator[Run]]


def scenarios(given: argparse.Namespace) -> dict[str, Scenario]:
    return {
        "machines": lambda folder: run_machines(folder, given.machines),
        "nodes": lambda folder: run_nodes(folder, given.nodes),
        "volumes": lambda folder: run_volumes(folder, given.volumes),
        "autoscaler": lambda folder: run_autoscaler(folder, given.instances),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="peers", description="compare Moxwell with its peers")
    parser.add_argument("--machines", type=int, default=20, metavar="N")
    parser.add_argument("--nodes", type=int, default=20, metavar="N")
    parser.add_argument("--volumes", type=int, default=40, metavar="N")
    parser.add_argument("--instances", type=int, default=5, metavar="N")
    parser.add_argument("--keep", type=Path, help="folder for logs (default: removed)")
    parser.add_argument("--to", type=Path, help="also write the report to this file")
    parser.add_argument("scenario", nargs="*")
    given = parser.parse_args()
    known = scenarios(given)
    if unknown := [name for name in given.scenario if name not in known]:
        parser.error(f"no such scenario: {', '.join(unknown)}; known: {', '.join(known)}")
    chosen = {n: s for n, s in known.items() if not given.scenario or n in given.scenario}
    if _is_missing(programs_of(chosen)):
        print("peers: NOT RUN: the peers cannot be built, see above", file=sys.stderr)
        return 0
    bytecode.compile_all()
    log.configure(form="console", level="error")  # the simulated guests and control planes
    with tempfile.TemporaryDirectory(prefix="peers-") as scratch:
        runs = list(_all(given.keep or Path(scratch), chosen))
    text = report(runs)
    print(f"\n{machine()}\n\n{text}")
    if given.to is not None:
        given.to.write_text(text)
    return 1 if any(is_bad(run) for run in runs) else 0


def is_bad(run: Run) -> bool:
    return bool(run.unimplemented or (run.program == "moxwell" and (run.leftovers or run.lost)))


def programs_of(scenarios: Iterable[str]) -> tuple[str, ...]:
    """The programs of the peers that run in these scenarios."""
    return tuple(PROGRAMS[name] for name in scenarios)


def _is_missing(programs: tuple[str, ...]) -> bool:
    install(list(programs))
    return bool(locate.missing(programs))


def _all(folder: Path, chosen: dict[str, Scenario]) -> Iterator[Run]:
    for name, scenario in chosen.items():
        for run in scenario(folder / name):
            print(f"peers: {name} with {run.program} is done", flush=True)
            yield run


if __name__ == "__main__":
    sys.exit(main())
