"""The table of commands: a command imports its own module only."""

import subprocess
import sys

import pytest
from typer.main import get_command

from moxwell.cli.commands import COMMANDS, make_app

IMPORTED = "import sys; from moxwell.cli.commands import make_app; make_app(sys.argv[1:])"
REPORT = "print(*sorted(m for m in sys.modules if m.startswith('moxwell.')))"


@pytest.mark.parametrize(
    ("argv", "known"),
    [
        (["get", "machines"], {"get"}),
        (["cluster", "list"], {"cluster"}),
        (["gte"], {command.name for command in COMMANDS}),
        (["--help"], {command.name for command in COMMANDS}),
        ([], {command.name for command in COMMANDS}),
    ],
)
def test_the_command_line_has_the_command_that_is_called(argv: list[str], known: set[str]) -> None:
    assert set(get_command(make_app(argv)).commands) == known  # type: ignore[attr-defined]


def test_a_command_does_not_import_the_others() -> None:
    run = [sys.executable, "-c", f"{IMPORTED}; {REPORT}", "get"]
    modules = subprocess.run(run, check=True, capture_output=True, text=True).stdout.split()
    assert "moxwell.cli.get" in modules
    assert {"moxwell.cli.instance", "moxwell.app.standalone", "moxwell.cli.cluster"} & set(
        modules
    ) == set()
