"""
``python -m envtest [--list] [name …]``: install missing programs, in the order of the table.

Prints one line per program and exits with 0 when all are installed. Without a module registry it
prints one message and exits with 1 under ``CI=true``, otherwise with 0; tests are then skipped.
"""

import argparse
import os
import sys
import time

from envtest import locate
from envtest.install import EnvtestError, Go, Offline, find_go, install
from envtest.table import BY_NAME, TOOLS, Tool


def say(line: str) -> None:
    sys.stdout.write(f"envtest: {line}\n")
    sys.stdout.flush()


def _one(go: Go, tool: Tool, place: str) -> str | None:
    began = time.monotonic()
    try:
        path = install(go, tool, say=lambda line: say(f"[{place}] {line}"))
    except Offline:
        raise
    except EnvtestError as error:
        say(f"[{place}] {tool.name} {tool.version}: NOT INSTALLED: {error}")
        return tool.name
    size = path.stat().st_size // 2**20
    say(f"[{place}] {tool.name} {tool.version}: {size} MiB in {time.monotonic() - began:.0f} s")
    return None


def run(names: list[str]) -> int:
    tools = [BY_NAME[n] for n in names] or list(TOOLS)
    wanted = [t for t in tools if not locate.is_installed(t.name)]
    if not wanted:
        say(f"all {len(tools)} programs are in {locate.cache()}")
        return 0
    try:
        go = find_go()
    except EnvtestError as error:
        say(f"NOT INSTALLED: {error}")
        return 1
    try:
        return _all(go, wanted)
    except Offline as error:
        say(f"NO GO MODULE REGISTRY CAN BE REACHED, tests that need it will be SKIPPED: {error}")
        return 1


def _all(go: Go, wanted: list[Tool]) -> int:
    places = [f"{i}/{len(wanted)}" for i in range(1, len(wanted) + 1)]
    failed = [n for t, p in zip(wanted, places, strict=True) if (n := _one(go, t, p))]
    if failed:
        say(f"{len(failed)} missing ({', '.join(failed)}): tests that need them will be SKIPPED")
    return 1 if failed else 0


def listing() -> int:
    for tool in TOOLS:
        state = locate.program(tool.name) if locate.is_installed(tool.name) else "not installed"
        say(f"{tool.name} {tool.version} {state}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="envtest", description="install upstream programs for tests"
    )
    parser.add_argument("--list", action="store_true", help="say what is installed")
    parser.add_argument("names", nargs="*", metavar="name")
    options = parser.parse_args()
    unknown = [n for n in options.names if n not in BY_NAME]
    if unknown:
        parser.error(f"no such program: {', '.join(unknown)}")
    if options.list:
        return listing()
    code = run(options.names)
    return code if os.environ.get("CI") == "true" else 0


if __name__ == "__main__":
    sys.exit(main())
