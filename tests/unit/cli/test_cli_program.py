"""Commands in messages have the path of the program and the instance of the command line."""

from typing import Any

import pytest
from typer.main import get_command

from moxwell.cli import commands
from moxwell.cli.program import WITHOUT_INSTANCE, CommandLine, instance_of

MESSAGES = {
    "the default instance": (CommandLine(), "see `moxwell status`", "see `moxwell status`"),
    "another path": (
        CommandLine(".venv/bin/moxwell"),
        "run `moxwell repair`, or `moxwell restore FILE`",
        "run `.venv/bin/moxwell repair`, or `.venv/bin/moxwell restore FILE`",
    ),
    "another instance": (
        CommandLine("moxwell", "two"),
        "delete it with `moxwell cluster delete NAME`, then purge",
        "delete it with `moxwell cluster delete NAME --name two`, then purge",
    ),
    "a command without an instance": (
        CommandLine("moxwell", "two"),
        "run `moxwell init --print`",
        "run `moxwell init --print`",
    ),
    "the program alone": (
        CommandLine("/opt/moxwell", "two"),
        "`moxwell`",
        "`/opt/moxwell --name two`",
    ),
    "a refusal of the embedded API server": (
        CommandLine(),
        'admission webhook "moxwell" denied the request: version v1.20.0 has no template',
        "version v1.20.0 has no template",
    ),
    "no command": (CommandLine("x", "two"), "moxwell is `up`", "moxwell is `up`"),
}


@pytest.mark.parametrize(("program", "text", "localized"), MESSAGES.values(), ids=MESSAGES)
def test_commands_in_messages_can_be_copied(
    program: CommandLine, text: str, localized: str
) -> None:
    assert program.localize(text) == localized


@pytest.mark.parametrize(
    ("argv", "instance"),
    [
        (["status", "--name", "two"], "two"),
        (["cluster", "list", "--name=two", "-o", "json"], "two"),
        ([], ""),
        (["status"], ""),
        (["status", "--name"], ""),
    ],
)
def test_the_instance_is_that_of_the_command_line(argv: list[str], instance: str) -> None:
    assert instance_of(argv) == instance


def test_the_commands_without_an_instance_are_known() -> None:
    every: Any = get_command(commands.make_app())
    shown = {name: found for name, found in every.commands.items() if not found.hidden}
    assert {name for name, found in shown.items() if not takes_instance(found)} == WITHOUT_INSTANCE


def takes_instance(command: Any) -> bool:
    """Whether a command, or one below it, has the option ``--name``."""
    below = getattr(command, "commands", {}).values()
    own = any("--name" in option.opts for option in command.params)
    return own or any(map(takes_instance, below))
