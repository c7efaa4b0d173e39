"""What commands print: every letter of what they were given."""

import io

import pytest
from rich.console import Console

from moxwell.cli.output import WIDE, Output, Progress, column_widths, show, table

SENTENCES = {
    "an address of IPv6": "https://[fd00::1]:6443",
    "tags in brackets": "fra1:9001 [k8s-v1.34.1,ubuntu]",
    "what rich would take for a colour": "[red]not red[/red]",
    "what rich would take for a mistake": "see [/etc/pve]",
}


@pytest.mark.parametrize("sentence", SENTENCES.values(), ids=SENTENCES)
def test_a_table_shows_every_letter(sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    show([{"what": sentence}], ("what",), Output.TABLE)
    assert capsys.readouterr().out.split("\n")[1].rstrip() == sentence


@pytest.mark.parametrize("sentence", SENTENCES.values(), ids=SENTENCES)
@pytest.mark.parametrize("terminal", [False, True], ids=["in a pipe", "on a terminal"])
def test_progress_says_every_letter(sentence: str, terminal: bool) -> None:
    out = io.StringIO()
    progress = Progress(Console(file=out, force_terminal=terminal, color_system=None, width=200))
    progress.say("at first")
    progress.say(sentence)
    progress.done(f"done: {sentence}")
    said = out.getvalue().split("\n")
    assert f"✓ done: {sentence}" in "".join(said)
    assert terminal or sentence in said


def printed(width: int) -> list[str]:
    """The lines of a table with a name and two sentences."""
    row = {
        "name": "demo-md0-0a98b1c421-m2xx",
        "what": "the guest is connected to its control plane at 127.0.0.1:23385",
        "what to do": "allow TCP port 6443 from the network of the guests",
    }
    out = io.StringIO()
    Console(width=WIDE, file=out).print(table([row], tuple(row), width))
    return out.getvalue().splitlines()


def test_a_table_fits_a_narrow_terminal_and_loses_nothing() -> None:
    lines = printed(80)
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("demo-md0-0a98b1c421-m2xx ")
    words = {word for line in lines[1:] for word in line.split()}
    assert {"connected", "127.0.0.1:23385", "6443", "guests"} <= words
    assert not any("…" in line for line in lines)


WIDTHS: dict[str, tuple[list[list[str]], int, list[int]]] = {
    "everything fits": ([["NAME", "STATE"], ["a", "it is ready"]], 80, [4, 11]),
    "a sentence is wrapped": ([["NAME", "STATE"], ["a-long-name", "it is ready"]], 20, [11, 7]),
    "sentences share the room": ([["A", "B"], ["one two three", "four five six"]], 22, [10, 10]),
    "a short cell is not wrapped": ([["A", "B"], ["1 GiB", "one two three four"]], 19, [5, 12]),
    "a name that is too long stays whole": ([["A", "B"], ["a" * 30, "one two"]], 20, [30, 7]),
    "nothing": ([[]], 20, []),
}


@pytest.mark.parametrize(("lines", "width", "widths"), WIDTHS.values(), ids=WIDTHS)
def test_lines_are_broken_between_words(
    lines: list[list[str]], width: int, widths: list[int]
) -> None:
    assert column_widths(lines, width) == widths


def test_a_table_for_a_pipe_has_one_line_for_each_row() -> None:
    assert len(printed(WIDE)) == 2
