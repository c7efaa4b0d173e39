"""
Finds installed kube-apiserver, kube-controller-manager and kube-scheduler binaries by version.

A folder holds the binaries themselves, a folder per binary
(``kube-apiserver-v1.36.3/kube-apiserver``) or per version (``v1.36.3/kube-apiserver``). A version
counts if all three binaries exist. ``--version`` runs once per binary, until the file changes.
"""

import asyncio
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from moxwell.errors import Missing
from moxwell.runtime.binaries import Programs

PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
SEARCH_PATH = "installed"  # search PATH and the folder of `make envtest`
VERSION_SECONDS = 60
_VERSION = re.compile(r"\bv?(\d+\.\d+\.\d+\S*)")


class ReleaseMissing(Missing):
    """Not all programs of the requested version are installed."""

    reason = "ReleaseMissing"


class BinariesMissing(Missing):
    """Control plane binaries were selected but are not installed."""

    reason = "ProgramMissing"

    def __init__(self, what: str, where: str) -> None:
        super().__init__(
            f"{what} not installed (searched {where}): `make envtest` builds them, "
            "--control-plane-binaries=DIR selects another folder, "
            "--control-plane-binaries=no disables them"
        )


@dataclass(frozen=True, slots=True)
class Release:
    """The programs of one version."""

    version: str
    apiserver: Path
    controller_manager: Path
    scheduler: Path


def folders(choice: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The folders to search: the chosen one, or the folder of ``make envtest`` and PATH."""
    if choice and choice != SEARCH_PATH:
        return (Path(choice),)
    cache = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or "/") / ".cache")
    envtest = Path(environ.get("MOXWELL_ENVTEST") or cache / "moxwell" / "envtest")
    path = (Path(part) for part in environ.get("PATH", "").split(os.pathsep) if part)
    return tuple(dict.fromkeys((envtest, *path)))


def rank(version: str) -> tuple[int, ...]:
    """A version as numbers, for sorting."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


class InstalledReleases:
    """Searches the folders on every call, so that releases installed later are found."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)
        self._known: dict[tuple[Path, int, int], str] = {}

    @property
    def searched(self) -> str:
        """The folders, for messages."""
        first = ", ".join(str(folder) for folder in self._folders[:4])
        return f"{first} and {len(self._folders) - 4} more" if len(self._folders) > 4 else first

    def etcd(self) -> Path:
        """The newest etcd."""
        found = Programs(self._folders).find("etcd")
        if found is None:
            raise BinariesMissing("etcd is", self.searched)
        return found

    def konnectivity(self) -> Path:
        """The newest konnectivity-server."""
        found = Programs(self._folders).find("konnectivity-server")
        if found is None:
            raise BinariesMissing("konnectivity-server is", self.searched)
        return found

    async def releases(self) -> dict[str, Release]:
        """Every complete release, the oldest first."""
        found: dict[str, dict[str, Path]] = {}
        for name in PROGRAMS:
            for path in self._candidates(name):
                version = await self._version(path)
                found.setdefault(version, {}).setdefault(name, path)
        complete = [v for v, programs in found.items() if v and len(programs) == len(PROGRAMS)]
        ordered = sorted(complete, key=rank)
        return {v: Release(v, *(found[v][name] for name in PROGRAMS)) for v in ordered}

    async def newest(self) -> str:
        """The newest complete version; BinariesMissing if there is none."""
        found = await self.releases()
        if not found:
            raise BinariesMissing(f"{', '.join(PROGRAMS)} of one version are", self.searched)
        return list(found)[-1]

    async def get(self, version: str) -> Release:
        """The binaries of a version; ReleaseMissing if one is not installed."""
        found = await self.releases()
        wanted = f"v{version.removeprefix('v')}"
        if wanted in found:
            return found[wanted]
        have = f"installed: {', '.join(found)}" if found else "no version is installed"
        where = self._folders[0] if self._folders else "a folder"
        raise ReleaseMissing(
            f"Kubernetes {wanted} is not installed ({have}): put kube-apiserver, "
            f"kube-controller-manager and kube-scheduler {wanted} into {where}/{wanted}, "
            "or ask for an installed version"
        )

    def _candidates(self, name: str) -> Iterator[Path]:
        for folder in self._folders:
            versioned = (*folder.glob(f"{name}-v*/{name}"), *folder.glob(f"v[0-9]*/{name}"))
            for path in (folder / name, *sorted(versioned)):
                if path.is_file() and os.access(path, os.X_OK):
                    yield path

    async def _version(self, path: Path) -> str:
        """The version of a binary; empty if it prints none. A failed run is tried again."""
        identity = _identity(path)
        if identity not in self._known:
            output = await _version_output(path)
            if output is None:
                return ""
            found = _VERSION.search(output)
            self._known[identity] = f"v{found[1]}" if found else ""
        return self._known[identity]


def _identity(path: Path) -> tuple[Path, int, int]:
    stat = path.stat()
    return path.resolve(), stat.st_mtime_ns, stat.st_size


async def _version_output(path: Path) -> str | None:
    """What a binary prints with ``--version``; None if it did not start or finish in time."""
    try:
        child = await asyncio.create_subprocess_exec(
            str(path),
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(VERSION_SECONDS):
            output, _ = await child.communicate()
    except TimeoutError:
        child.kill()
        await child.wait()
        return None
    return output.decode(errors="replace")
