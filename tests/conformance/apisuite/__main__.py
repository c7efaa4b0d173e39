"""
``python -m apisuite [--genuine KUBECONFIG] [--embedded KUBECONFIG] [word …]``: play cases by hand.

With both, the differences are printed; with one, what it showed. Words narrow the cases: each must
be in ``area: name``. Exit 1 when anything differs.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from apisuite.allowed import ALLOWED
from apisuite.case import Case
from apisuite.differ import unexplained
from apisuite.play import Player
from apisuite.server import Server
from apisuite.tables import HTTP, KUBECTL, load
from rig import locate


def chosen(words: Iterable[str]) -> list[tuple[str, Case]]:
    wanted = [w.lower() for w in words]
    named = ((f"{area}: {case.name}", case) for area, case in load(HTTP + KUBECTL))
    return [(name, case) for name, case in named if all(w in name.lower() for w in wanted)]


def compared(name: str, shown: list[Any]) -> int:
    found = unexplained(name, shown[0], shown[1], ALLOWED)
    for difference in found:
        sys.stdout.write(f"  {difference}\n")
    return len(found)


def run(servers: list[Server], words: list[str]) -> int:
    failed = 0
    for name, case in chosen(words):
        shown = [Player(server).play(case) for server in servers]
        if len(shown) == 2:
            sys.stdout.write(f"{name}\n")
            failed += compared(name, shown) > 0
        else:
            sys.stdout.write(f"{name}\n{json.dumps(shown[0], indent=1)}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(chosen(words))} cases, {failed} differ\n")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="apisuite")
    parser.add_argument("--genuine", type=Path)
    parser.add_argument("--embedded", type=Path)
    parser.add_argument("words", nargs="*")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        configs = [c for c in (told.genuine, told.embedded) if c]
        kubectl = locate.program("kubectl")
        servers = [Server(c, kubectl, Path(scratch) / str(i)) for i, c in enumerate(configs)]
        return 1 if run(servers, told.words) else 0


if __name__ == "__main__":
    sys.exit(main())
