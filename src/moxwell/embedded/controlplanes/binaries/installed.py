"""
Which releases of the control plane's programs are installed, by what they say of themselves.

In: folders, the first one first. A folder holds programs itself, in a folder of its own per program
(``kube-apiserver-v1.36.3/kube-apiserver``) or per version (``v1.36.3/kube-apiserver``); several
versions lie side by side. Out: a :class:`Release` for each version of which all three programs are
there. A program is asked ``--version`` once, until its file changes.
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
ANYWHERE = "installed"  # look on PATH and where `make envtest` puts programs
ASK_SECONDS = 20
_VERSION = re.compile(r"\bv?(\d+\.\d+\.\d+\S*)")


class ReleaseMissing(Missing):
    """A tenant asks for a version of which not all programs are installed."""

    reason = "ReleaseMissing"


class NotInstalled(Missing):
    """Genuine programs were chosen, but there are none."""

    reason = "ProgramMissing"

    def __init__(self, what: str, where: str) -> None:
        super().__init__(
            f"{what} not installed (looked in {where}): `make envtest` builds them, "
            "--genuine-planes=DIR names another folder, --genuine-planes=no does without"
        )


@dataclass(frozen=True, slots=True)
class Release:
    """The programs of one version."""

    version: str
    apiserver: Path
    manager: Path
    scheduler: Path


def folders(choice: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Where to look: the folder that was chosen, or anywhere."""
    if choice and choice != ANYWHERE:
        return (Path(choice),)
    cache = Path(environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or "/") / ".cache")
    envtest = Path(environ.get("MOXWELL_ENVTEST") or cache / "moxwell" / "envtest")
    path = (Path(part) for part in environ.get("PATH", "").split(os.pathsep) if part)
    return tuple(dict.fromkeys((envtest, *path)))


def rank(version: str) -> tuple[int, ...]:
    """A version as numbers, to compare."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


class Installed:
    """Looks each time it is asked: what is installed later is found."""

    def __init__(self, where: Sequence[Path]) -> None:
        self._where = tuple(where)
        self._known: dict[tuple[Path, int, int], str] = {}

    @property
    def where(self) -> str:
        """The folders, for people."""
        few = ", ".join(str(folder) for folder in self._where[:4])
        return f"{few} and {len(self._where) - 4} more" if len(self._where) > 4 else few

    def etcd(self) -> Path:
        """The newest etcd."""
        found = Programs(self._where).find("etcd")
        if found is None:
            raise NotInstalled("etcd is", self.where)
        return found

    async def releases(self) -> dict[str, Release]:
        """Every version that is whole, the oldest first."""
        found: dict[str, dict[str, Path]] = {}
        for name in PROGRAMS:
            for path in self._candidates(name):
                version = await self._version(path)
                found.setdefault(version, {}).setdefault(name, path)
        whole = [v for v, programs in found.items() if v and len(programs) == len(PROGRAMS)]
        ordered = sorted(whole, key=rank)
        return {v: Release(v, *(found[v][name] for name in PROGRAMS)) for v in ordered}

    async def newest(self) -> str:
        """The newest whole version, or a sentence that says what to install."""
        found = await self.releases()
        if not found:
            raise NotInstalled(f"{', '.join(PROGRAMS)} of one version are", self.where)
        return list(found)[-1]

    async def get(self, version: str) -> Release:
        """The programs of a version, or a sentence that says what to install."""
        found = await self.releases()
        wanted = f"v{version.removeprefix('v')}"
        if wanted in found:
            return found[wanted]
        have = f"installed: {', '.join(found)}" if found else "no version is installed"
        where = self._where[0] if self._where else "a folder"
        raise ReleaseMissing(
            f"Kubernetes {wanted} is not installed ({have}): put kube-apiserver, "
            f"kube-controller-manager and kube-scheduler {wanted} into {where}/{wanted}, "
            "or ask for an installed version"
        )

    def _candidates(self, name: str) -> Iterator[Path]:
        for folder in self._where:
            apart = (*folder.glob(f"{name}-v*/{name}"), *folder.glob(f"v[0-9]*/{name}"))
            for path in (folder / name, *sorted(apart)):
                if path.is_file() and os.access(path, os.X_OK):
                    yield path

    async def _version(self, path: Path) -> str:
        mark = _mark(path)
        if mark not in self._known:
            self._known[mark] = await _asked(path)
        return self._known[mark]


def _mark(path: Path) -> tuple[Path, int, int]:
    seen = path.stat()
    return path.resolve(), seen.st_mtime_ns, seen.st_size


async def _asked(path: Path) -> str:
    """What a program says to ``--version``; empty where it says nothing of use."""
    try:
        child = await asyncio.create_subprocess_exec(
            str(path),
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(ASK_SECONDS):
            out, _ = await child.communicate()
    except (OSError, TimeoutError):
        return ""
    found = _VERSION.search(out.decode(errors="replace"))
    return f"v{found[1]}" if found else ""
