"""
Prints rows as a table, JSON or YAML, and the progress of a command.

rich interprets brackets as markup, so data is always wrapped in ``Text``: an address such as
``[fd00::1]:6443`` would lose characters.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from moxwell.cli import program

if TYPE_CHECKING:  # loaded when something is printed with it
    from rich.console import Console
    from rich.status import Status
    from rich.table import Table

WIDE, GAP = 2000, 2  # columns of a pipe; blanks between two columns


class Output(StrEnum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def count(number: int, noun: str) -> str:
    """A number with its noun: ``1 node``, ``3 nodes``."""
    return f"{number} {noun if number == 1 else noun + 's'}"


def show(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], output: Output) -> None:
    """Print rows; ``columns`` are the keys a table shows, in that order."""
    if output is Output.TABLE:
        from rich.console import Console

        console = Console()
        width = console.width if console.is_terminal else WIDE  # a pipe gets each row in one line
        Console(soft_wrap=True, width=WIDE).print(table(rows, columns, width))
    else:
        show_value([dict(row) for row in rows], output)


def show_value(value: Any, output: Output) -> None:
    """Print one value as JSON or YAML."""
    if output is Output.JSON:
        import json

        print(json.dumps(value, indent=2, default=str))
        return
    import yaml

    print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), end="")


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], width: int) -> "Table":
    """
    A table for a terminal of ``width``. Lines are broken between words only, so that names can be
    copied; a row with longer names is one line, which the terminal breaks.
    """
    from rich.table import Table
    from rich.text import Text

    local = program.current()
    header = [column.upper() for column in columns]
    cells = [[local.localize(_cell(row.get(column))) for column in columns] for row in rows]
    made = Table(box=None, pad_edge=False, header_style="bold")
    for title, room in zip(header, column_widths([header, *cells], width), strict=True):
        made.add_column(title, width=room, overflow="fold")
    for line in cells:
        made.add_row(*map(Text, line))
    return made


def column_widths(lines: Sequence[Sequence[str]], width: int) -> list[int]:
    """The width of each column; every one has room for its longest word."""
    full = [max(map(len, column)) for column in zip(*lines, strict=True)]
    widths = [max(map(_longest_word, column)) for column in zip(*lines, strict=True)]
    spare = width - GAP * (len(widths) - 1) - sum(widths)
    if spare < 0:
        return full
    lacking = sorted(range(len(widths)), key=lambda index: full[index] - widths[index])
    for position, index in enumerate(lacking):  # short cells first: sentences share the rest
        given = min(full[index] - widths[index], spare // (len(lacking) - position))
        widths[index] += given
        spare -= given
    return widths


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


class Progress:
    """Shows the current state: one changing line on a terminal, one line per change elsewhere."""

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.console import Console

        self._console = console or Console(stderr=True, soft_wrap=True, highlight=False)
        self._status: Status | None = None
        self._last = ""

    def say(self, sentence: str) -> None:
        """Show the current state unless it is unchanged."""
        from rich.text import Text

        if sentence == self._last:
            return
        self._last = sentence
        if not self._console.is_terminal:
            self._console.print(Text(sentence))
        elif self._status is None:
            self._status = self._console.status(Text(sentence))
            self._status.start()
        else:
            self._status.update(Text(sentence))

    def done(self, sentence: str) -> None:
        """Print that something is finished."""
        from rich.text import Text

        self.stop()
        self._console.print(Text.assemble(("✓", "green"), " ", sentence))

    def warn(self, sentence: str) -> None:
        """Print a warning."""
        from rich.text import Text

        self.stop()
        self._console.print(Text.assemble(("!", "yellow"), " ", sentence))

    def fail(self, sentence: str) -> None:
        """Print a failure that somebody must correct."""
        from rich.text import Text

        self.stop()
        self._console.print(Text.assemble(("✗", "red"), " ", sentence))

    def stop(self) -> None:
        """Remove the changing line."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        self._last = ""
