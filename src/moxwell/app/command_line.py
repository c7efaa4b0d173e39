"""Builds the command lines that the dashboard shows, with the path of the program."""

import shutil
import sys
from pathlib import Path

DEFAULT_INSTANCE = "lab"


def path() -> str:
    """The name of the installed program if it is on PATH, else its path."""
    program = Path(sys.executable).with_name("moxwell")
    found = shutil.which("moxwell")
    if found and Path(found).resolve() == program.resolve():
        return "moxwell"
    return str(program) if program.exists() else f"{sys.executable} -m moxwell"


def instance_of(name: str) -> str:
    """The value of ``--name`` that commands need; empty for the default instance."""
    return "" if name == DEFAULT_INSTANCE else name


def command(words: str, name: str) -> str:
    """A command line for an instance."""
    instance = instance_of(name)
    return " ".join(filter(None, (path(), words, f"--name {instance}" if instance else "")))
