"""
Paths of the installed programs.

The cache is ``MOXWELL_ENVTEST``, else the XDG cache. A program of the table is searched at its
pinned version only and never on ``PATH``, so that a test does not depend on other installations.
"""

import os
from pathlib import Path

from envtest.table import BY_NAME, TOOLS


def cache() -> Path:
    """The folder with one folder per program and version."""
    configured = os.environ.get("MOXWELL_ENVTEST")
    if configured:
        return Path(configured)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "moxwell" / "envtest"


def folder(name: str) -> Path:
    return cache() / BY_NAME[name].folder


def program(name: str) -> Path:
    """The path of a program, installed or not."""
    return folder(name) / name


def is_installed(name: str) -> bool:
    return program(name).is_file()


def missing(names: tuple[str, ...] | None = None) -> tuple[str, ...]:
    wanted = names if names is not None else tuple(t.name for t in TOOLS)
    return tuple(n for n in wanted if not is_installed(n))
