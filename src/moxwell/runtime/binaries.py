"""
Programs of others that Moxwell may start: kube-apiserver, etcd, kubectl, helm.

In: the folders to look into, first one first; ``app`` passes a configured folder and those of
``PATH``. Out: a path, or :class:`ProgramMissing` with a sentence that says what to install. A
folder may hold a program itself (``etcd``) or in a folder of its own per version
(``etcd-v3.6.10/etcd``), of which the newest counts.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from moxwell.errors import Missing


class ProgramMissing(Missing):
    """A program that must be started is on none of the folders."""

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
    """Looks into its folders each time it is asked: what is installed later is found."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)

    def find(self, name: str) -> Path | None:
        """Where ``name`` is, or None."""
        for folder in self._folders:
            versions = sorted(folder.glob(f"{name}-v*"), key=_version, reverse=True)
            here = (folder / name, *(v / name for v in versions))
            found = next((p for p in here if _is_program(p)), None)
            if found is not None:
                return found
        return None

    def get(self, name: str) -> Path:
        """Where ``name`` is."""
        found = self.find(name)
        if found is None:
            raise ProgramMissing(name, self._folders)
        return found
