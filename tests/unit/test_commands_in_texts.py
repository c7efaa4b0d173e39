"""
Each command of ours in a text is one that the program accepts: pages and messages.

Commands in the middle of a sentence are in backquotes and may leave out arguments. Words in
capital letters, and what has an ellipsis, stand for something else.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command

from moxwell.cli.commands import make_app

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "moxwell"
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
PAGES = [page for page in PAGES if page.name != "cli.md"]  # made from the commands
SENTENCE = re.compile(r"`(?:\.venv/bin/)?moxwell ([^`]*)`")
LINE = re.compile(
    r"^\s*(?:\$ )?(?:sudo |nohup )?(?:\.venv/bin/)?moxwell ([a-z][^`\n]*)$", re.MULTILINE
)
BLOCK = re.compile(r"^[ ]*```\w*\n(.*?)^[ ]*```$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"\s+# .*$|   .*$")  # columns of a picture too
END = re.compile(r"\s(?:\||>|>>|2>|&|&&|<)(?:\s|$)")
STANDS_FOR = "PLACEHOLDER"
USAGE_ERROR: Any = typer.BadParameter.__base__  # also for unknown options
APP: Any = get_command(make_app())


def commands_of_page(text: str) -> Iterator[str]:
    joined = text.replace("\\\n", " ")
    for block in BLOCK.findall(joined):
        yield from LINE.findall(block)
    prose = BLOCK.sub("", joined)
    yield from (re.sub(r"\s+", " ", found) for found in SENTENCE.findall(prose))


def commands_of_source(text: str) -> Iterator[str]:
    """Commands in strings, and those that ``command("…")`` completes."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and _completes(node.func):
            yield from (_text(arg) for arg in node.args if _text(arg))
        elif isinstance(node, (ast.Constant, ast.JoinedStr)):
            yield from SENTENCE.findall(_text(node))


def _completes(function: ast.expr) -> bool:
    """``program.current().command``; ``app.command`` defines one."""
    owner = getattr(function, "value", None)
    return getattr(function, "attr", "") == "command" and getattr(owner, "id", "") != "app"


def _text(node: ast.AST) -> str:
    """A string; what an f-string inserts is a placeholder."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return STANDS_FOR
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def problem(text: str) -> str:
    """Why the program refuses a command; empty if it accepts it, or would with more arguments."""
    words = shlex.split(END.split(COMMENT.sub("", text))[0], comments=True)
    command: Any = APP
    while words and isinstance(command, TyperGroup) and not words[0].startswith("-"):
        if _is_placeholder(words[0]):
            return ""
        found = command.commands.get(words[0])
        if found is None:
            return f"no command {words[0]!r}"
        command, words = found, words[1:]
    try:
        command.make_context("moxwell", [_filled(word) for word in words])
    except typer.Exit:
        return ""  # --help
    except USAGE_ERROR as error:
        said = str(error.format_message())
        partial = said.startswith("Missing ") or said.endswith("requires an argument.")
        return "" if partial or STANDS_FOR in said else said
    return ""


def _is_placeholder(word: str) -> bool:
    return "…" in word or STANDS_FOR in word or (word.isupper() and len(word) > 1)


def _filled(word: str) -> str:
    option, equals, value = word.partition("=")
    if option.startswith("--") and equals and _is_placeholder(value):
        return f"{option}={STANDS_FOR}"
    return STANDS_FOR if _is_placeholder(word) else word


PROBLEMS = {
    "lab disconnect REGION": "",
    "cluster upgrade": "",
    "cluster scale demo md0 5   and watch the dashboard": "",
    "cluster delte x": "no command 'delte'",
    "cluster scale demo md0 5 --nodes 3": "No such option: --nodes (Possible options: --name)",
    "down --purge extra": "Got unexpected extra argument(s) (extra)",
    "explain clster demo": "Invalid value for 'what': Value error, 'clster' is not one of "
    "'cluster', 'machine', 'node', 'pod'.",
    "explain KIND demo": "",
    "cluster scale demo md0 five": "Invalid value for 'replicas': Input should be a valid "
    "integer, unable to parse string as an integer",
}


@pytest.mark.parametrize(("command", "expected"), PROBLEMS.items(), ids=PROBLEMS)
def test_problems_of_commands(command: str, expected: str) -> None:
    assert problem(command) == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_are_accepted(page: Path) -> None:
    found = {command: problem(command) for command in commands_of_page(page.read_text())}
    assert {command: said for command, said in found.items() if said} == {}


def test_commands_in_messages_are_accepted() -> None:
    sources = SRC.rglob("*.py")
    found = {c: problem(c) for path in sources for c in commands_of_source(path.read_text())}
    assert len(found) > 40
    assert {command: said for command, said in found.items() if said} == {}
