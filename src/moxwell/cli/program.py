"""
The path of this program and its ``--name``, so that commands in messages can be copied.

Messages name commands as `moxwell …` in backquotes. What is printed has the path of the program
that runs and, if ``--name`` was given, the instance. An instance that ``MOXWELL_NAME`` names is
that of the next command too.
"""

import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

WITHOUT_INSTANCE = frozenset(
    {"init", "bootstrap", "sim", "operator", "csi", "cni", "render", "externalgrpc"}
)
_ADMISSION = 'admission webhook "moxwell" denied the request: '  # kubectl users expect it
_COMMAND = re.compile(r"`moxwell((?: [^`\n]*)?)`")


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The path of the program, and the instance that its command line names."""

    path: str = "moxwell"
    instance: str = ""

    def command(self, words: str) -> str:
        """A command line of this program."""
        named = self.instance and words.partition(" ")[0] not in WITHOUT_INSTANCE
        parts = [self.path, words, f"--name {self.instance}" if named else ""]
        return " ".join(filter(None, parts))

    def localize(self, text: str) -> str:
        """A message with its commands as they must be typed here, without who refused it."""
        plain = text.replace(_ADMISSION, "")
        return _COMMAND.sub(lambda found: f"`{self.command(found[1].strip())}`", plain)


def current() -> CommandLine:
    """This process."""
    return CommandLine(_path(Path(sys.argv[0])), instance_of(sys.argv[1:]))


def instance_of(argv: Sequence[str]) -> str:
    """The value of ``--name``; empty if it is not given."""
    for word, following in zip(argv, [*argv[1:], ""], strict=False):
        if word == "--name":
            return following
        if word.startswith("--name="):
            return word.removeprefix("--name=")
    return ""


def _path(called: Path) -> str:
    """Its name if it is on PATH, else its path."""
    program, found, here = called.resolve(), shutil.which("moxwell"), Path.cwd()
    if found and Path(found).resolve() == program:
        return "moxwell"
    if program.name != "moxwell":  # python -m moxwell
        return f"{sys.executable} -m moxwell"
    return str(program.relative_to(here)) if program.is_relative_to(here) else str(program)
