"""What commands print: every letter of what they were given."""

import io

import pytest
from rich.console import Console

from moxwell.cli.output import Output, Progress, show

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
