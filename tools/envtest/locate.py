"""
Where the installed programs are.

In: the environment (``MOXWELL_ENVTEST``, else the XDG cache). Out: paths. A program of the table is
looked for at its pinned version only, never on ``PATH``: a test must not pass because of a
program somebody happened to have.
"""

import os
from pathlib import Path

from envtest.table import BY_NAME, TOOLS


def cache() -> Path:
    """The folder that holds one folder per program and version."""
    told = os.environ.get("MOXWELL_ENVTEST")
    if told:
        return Path(told)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "moxwell" / "envtest"


def folder(name: str) -> Path:
    return cache() / BY_NAME[name].folder


def program(name: str) -> Path:
    """Where ``name`` is, or will be."""
    return folder(name) / name


def is_installed(name: str) -> bool:
    return program(name).is_file()


def missing(names: tuple[str, ...] | None = None) -> tuple[str, ...]:
    wanted = names if names is not None else tuple(t.name for t in TOOLS)
    return tuple(n for n in wanted if not is_installed(n))
