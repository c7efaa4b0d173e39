"""``python -m apisuite [word …]``: plays the cases whose names contain the words."""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from apisuite import embedded
from apisuite.allowed import ALLOWED
from apisuite.case import Case
from apisuite.differ import unexplained
from apisuite.play import Player
from apisuite.server import Server
from apisuite.tables import HTTP, KUBECTL, load
from envtest import locate
from envtest.control_plane import ControlPlane


def chosen(words: Iterable[str]) -> list[tuple[str, Case]]:
    wanted = [w.lower() for w in words]
    named = ((f"{area}: {case.name}", case) for area, case in load(HTTP + KUBECTL))
    return [(name, case) for name, case in named if all(_said(w, name.lower()) for w in wanted)]


def _said(word: str, name: str) -> bool:
    return name.startswith(word) if word.endswith(":") else word in name


def compare(genuine: Server, ours: Server, words: list[str]) -> int:
    failed = 0
    for name, case in chosen(words):
        left, right = Player(genuine).play(case), Player(ours).play(case)
        found = unexplained(name, left, right, ALLOWED)
        failed += bool(found)
        lines = [name, *(f"  {difference}" for difference in found)]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(chosen(words))} cases, {failed} differ\n")
    return failed


def show(server: Server, words: list[str]) -> None:
    for name, case in chosen(words):
        shown: list[Any] = Player(server).play(case)
        sys.stdout.write(f"{name}\n{json.dumps(shown, indent=1)}\n")


def _genuine(told: Path | None, scratch: Path, stack: ExitStack) -> Server:
    if told is None:
        plane = stack.enter_context(ControlPlane(scratch / "genuine"))
        plane.start()
        plane.start_controller_manager()
        told = plane.kubeconfig
    return Server(told, locate.program("kubectl"), scratch / "g")


def _embedded(told: Path | None, scratch: Path, stack: ExitStack) -> Server:
    if told is None:
        process, told = embedded.start(scratch / "embedded")
        stack.callback(process.stop)
    return Server(told, locate.program("kubectl"), scratch / "e", patience_seconds=8.0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="apisuite")
    parser.add_argument("--genuine", type=Path, metavar="KUBECONFIG")
    parser.add_argument("--embedded", type=Path, metavar="KUBECONFIG")
    parser.add_argument("--show", choices=("genuine", "embedded"))
    parser.add_argument("words", nargs="*")
    told = parser.parse_args()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if told.show:
            one = _genuine if told.show == "genuine" else _embedded
            show(one(getattr(told, told.show), scratch, stack), told.words)
            return 0
        genuine = _genuine(told.genuine, scratch, stack)
        return 1 if compare(genuine, _embedded(told.embedded, scratch, stack), told.words) else 0


if __name__ == "__main__":
    sys.exit(main())
