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


def compare(reference: Server, embedded_server: Server, words: list[str]) -> int:
    failed = 0
    for name, case in chosen(words):
        left, right = Player(reference).play(case), Player(embedded_server).play(case)
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


def _reference_server(config: Path | None, scratch: Path, stack: ExitStack) -> Server:
    if config is None:
        plane = stack.enter_context(ControlPlane(scratch / "genuine"))
        plane.start()
        plane.start_controller_manager()
        config = plane.kubeconfig
    return Server(config, locate.program("kubectl"), scratch / "g")


def _embedded_server(config: Path | None, scratch: Path, stack: ExitStack) -> Server:
    if config is None:
        process, config = embedded.start(scratch / "embedded")
        stack.callback(process.stop)
    return Server(config, locate.program("kubectl"), scratch / "e", patience_seconds=8.0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="apisuite")
    parser.add_argument("--genuine", type=Path, metavar="KUBECONFIG")
    parser.add_argument("--embedded", type=Path, metavar="KUBECONFIG")
    parser.add_argument("--show", choices=("genuine", "embedded"))
    parser.add_argument("words", nargs="*")
    args = parser.parse_args()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if args.show:
            one = _reference_server if args.show == "genuine" else _embedded_server
            show(one(getattr(args, args.show), scratch, stack), args.words)
            return 0
        reference = _reference_server(args.genuine, scratch, stack)
        return (
            1
            if compare(reference, _embedded_server(args.embedded, scratch, stack), args.words)
            else 0
        )


if __name__ == "__main__":
    sys.exit(main())
