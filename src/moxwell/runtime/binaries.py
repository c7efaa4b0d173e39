"""
Finds the programs of others that Moxwell starts: kube-apiserver, etcd, kubectl, helm.

The directories are searched in order; ``app`` passes a configured directory and those of ``PATH``.
A directory holds a program itself (``etcd``) or a subdirectory per version (``etcd-v3.6.10/etcd``),
of which the newest is used.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from moxwell.errors import Missing


class ProgramMissing(Missing):
    """No directory contains the program; the text says what to install."""

    reason = "ProgramMissing"

    def __init__(self, name: str, folders: Sequence[Path]) -> None:
        looked = ", ".join(str(f) for f in folders) or "nowhere"
        super().__init__(f"{name} is not installed (looked in {looked})")
        self.name = name


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", folder.name.rpartition("-v")[2]))


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


class Programs:
    """Searches the directories on every call, so a program that is installed later is found."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)

    def find(self, name: str) -> Path | None:
        """The path of ``name``, or None."""
        for folder in self._folders:
            versions = sorted(folder.glob(f"{name}-v*"), key=_version, reverse=True)
            here = (folder / name, *(v / name for v in versions))
            found = next((p for p in here if _is_program(p)), None)
            if found is not None:
                return found
        return None

    def get(self, name: str) -> Path:
        """The path of ``name``; raises ProgramMissing."""
        found = self.find(name)
        if found is None:
            raise ProgramMissing(name, self._folders)
        return found
