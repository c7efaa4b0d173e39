"""
The commands in the code blocks of a page, with the output that the page shows.

A block ``console`` has commands after ``$ `` and their output; in a block ``sh`` each line is a
command. A block ``yaml`` whose first line is a comment with a file name is that file. A comment
before a block changes this: ``<!-- not run: REASON -->``, or ``<!-- output of: COMMAND -->`` for a
block that shows output only. A command whose output begins with ``error`` must fail.
"""

import re
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(
    r"(?:^[ ]*<!-- (?P<marker>[^\n]*?) -->\n)?^(?P<indent>[ ]*)```(?P<kind>console|sh|yaml)\n"
    r"(?P<text>.*?)^[ ]*```$",
    re.DOTALL | re.MULTILINE,
)
FILE = re.compile(r"# (\S+\.yaml)$")
COMMENT = re.compile(r"\s+# .*$")
ANY, MAX_FOLLOW = "…", 3.0
CHANGING = (
    (re.compile(r"\.venv/bin/moxwell"), "moxwell"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"\b\d+(?:\.\d+)?(?:s|m|h|d)(?:\d+s)?\b"), "AGE"),
    (re.compile(r"\b[0-9a-f]{10}-[a-z0-9]{5}\b"), "ID"),
    (re.compile(r"\d{8}T\d{6}Z-r\d+"), "BACKUP"),
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True, slots=True)
class PageCommand:
    """One command of a page and the lines of output that the page shows."""

    command: str
    output: tuple[str, ...] = ()

    @property
    def must_fail(self) -> bool:
        return any(line.lower().startswith("error") for line in self.output)

    @property
    def follows(self) -> bool:
        """Whether it runs until it is interrupted."""
        return (
            bool(re.search(r" (--watch|--follow|-f)$", self.command))
            and "apply" not in self.command
        )


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file that the page shows."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class NotRun:
    """A block that the page says is not run."""

    first_line: str
    reason: str


Step = PageCommand | PageFile | NotRun


def page_steps(text: str) -> list[Step]:
    """What a reader of a page does, in order."""
    found: list[Step] = []
    for match in BLOCK.finditer(text):
        indent = len(match["indent"])
        lines = [line[indent:] for line in match["text"].splitlines()]
        found += _block(match["kind"], match["marker"] or "", lines)
    return found


def _block(kind: str, marker: str, lines: list[str]) -> list[Step]:
    if marker.startswith("not run:"):
        return [NotRun(lines[0], marker.removeprefix("not run:").strip())]
    if marker.startswith("output of:"):
        shown = tuple(line for line in lines if line.strip())
        return [PageCommand(marker.removeprefix("output of:").strip(), shown)]
    if kind == "yaml":
        name = FILE.match(lines[0])
        return [PageFile(name[1], "\n".join(lines) + "\n")] if name else []
    joined = "\n".join(lines).replace("\\\n", "")
    return list(_commands(joined.splitlines(), kind))


def _commands(lines: list[str], kind: str) -> list[PageCommand]:
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        is_command = line.startswith("$ ") if kind == "console" else bool(line.strip())
        if is_command:
            found.append((COMMENT.sub("", line.removeprefix("$ ")), []))
        elif found and line.strip():
            found[-1][1].append(line)
    return [PageCommand(command, tuple(output)) for command, output in found]


def missing_lines(expected: tuple[str, ...], output: str) -> list[str]:
    """The shown lines that an output does not have; ``…`` stands for anything."""
    have = [_normal(line) for line in output.splitlines()]
    return [line for line in expected if not any(_matches(line, other) for other in have)]


def _matches(expected: str, line: str) -> bool:
    parts = [re.escape(part.strip()) for part in _normal(expected).split(ANY)]
    return re.fullmatch(r"\s*.*\s*".join(parts), line) is not None


def _normal(line: str) -> str:
    for pattern, text in CHANGING:
        line = pattern.sub(text, line)
    return line.strip()


def pages(root: Path) -> list[Path]:
    """README, tutorials, how-tos, and the pages with something to try."""
    docs = root / "docs"
    return [
        root / "README.md",
        *(docs / name for name in ("autoscaler.md", "dashboard.md", "simulator.md")),
        *sorted(docs.glob("tutorial-*.md")),
        *sorted(docs.glob("howto-*.md")),
    ]
