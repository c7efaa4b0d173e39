"""
Builds a Containerfile without an engine: each stage is a folder, each RUN a chroot into it.

Knows the instructions that ours uses and refuses others. Packages come from where this machine gets
them: its configuration of apt and pip is mounted while a step runs.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
MACHINE = ("/etc/apt", "/etc/ssl", "/etc/pip.conf", "/etc/hosts", "/etc/resolv.conf")
ENTER = r"""
set -e
root=$1; shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
while [ "$1" != -- ]; do mount --bind "$1" "$root$1"; shift; done; shift
exec chroot "$root" "$@"
"""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class Stage:
    """A root file system and how programs start in it."""

    root: Path
    env: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    user: str = ""
    entrypoint: tuple[str, ...] = ()

    def run(self, *words: str, build: bool = False) -> "subprocess.CompletedProcess[str]":
        """Run a command as the image's user; a step of the build as root, with the network."""
        mounts = [m for m in MACHINE if build and Path(m).exists()]
        for name in mounts:
            _same_kind(Path(name), self.root / name.lstrip("/"))
        user, _, group = self.user.partition(":")
        ids = [f"--reuid={user}", f"--regid={group or user}", "--clear-groups", "--no-new-privs"]
        drop = ["setpriv", *ids] if user and not build else []
        command = ["unshare", "-m", "sh", "-c", ENTER, "sh", str(self.root), *mounts, "--"]
        env = {**(_network() if build else {}), **self.env}
        return subprocess.run(
            [*command, *drop, *words], capture_output=True, text=True, check=False, env=env
        )

    def start(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run the entrypoint with arguments."""
        return self.run(*self.entrypoint, *words)


def _network() -> dict[str, str]:
    """How apt and pip reach their registries from here: settings and CAs of this machine."""
    given = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "SSL_"))}
    trusted = {"PIP_CERT": BUNDLE} if Path(BUNDLE).exists() else {}
    return {**trusted, **given, "DEBIAN_FRONTEND": "noninteractive"}


def _same_kind(source: Path, target: Path) -> None:
    """A file or folder to mount on."""
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.touch()


def instructions(text: str) -> list[tuple[str, str]]:
    """Instructions with their arguments, without comments."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    rows = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    return [(row.split(None, 1)[0], row.split(None, 1)[1]) for row in rows]


class Build:
    """One build in a folder; ``archive`` is the root file system of the base image."""

    def __init__(self, context: Path, archive: Path, folder: Path) -> None:
        self.context, self._archive, self._folder = context, archive, folder
        self.arguments: dict[str, str] = {}
        self.stages: dict[str, Stage] = {}
        self._sent = [
            line.removeprefix("!")
            for line in (context / ".containerignore").read_text().splitlines()
            if line.startswith("!")
        ]

    def run(self, text: str) -> Stage:
        """Execute all instructions; returns the last stage."""
        stage = Stage(self._folder)
        for name, rest in instructions(text):
            if name == "ARG":
                key, _, value = rest.partition("=")
                self.arguments[key] = value
            elif name == "FROM":
                stage = self._stage(rest)
            else:
                self._execute(stage, name, rest)
        return stage

    def _stage(self, rest: str) -> Stage:
        base, _, name = rest.partition(" AS ")
        assert base == "${BASE}", "every stage starts from the pinned base"
        stage = Stage(self._folder / f"stage{len(self.stages)}")
        stage.root.mkdir(parents=True)
        stage.root.chmod(0o755)
        words = ["tar", "--numeric-owner", "--exclude=./dev/*", "-C", str(stage.root), "-xpf"]
        subprocess.run([*words, str(self._archive)], check=True)
        self.stages[name or "last"] = stage
        return stage

    def _execute(self, stage: Stage, name: str, rest: str) -> None:
        match name:
            case "RUN":
                done = stage.run("/bin/sh", "-c", rest, build=True)
                said = f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
                assert done.returncode == 0, f"RUN {rest}: {said}"
            case "COPY":
                self._copy(stage, shlex.split(rest))
            case "ENV":
                stage.env |= dict(word.split("=", 1) for word in shlex.split(rest))
            case "USER":
                stage.user = rest
            case "ENTRYPOINT":
                stage.entrypoint = tuple(json.loads(rest))
            case _:
                raise NotImplementedError(f"{name}: not known here")

    def _copy(self, stage: Stage, words: Sequence[str]) -> None:
        *given, target = words
        place = stage.root / target.lstrip("/")
        if given[0].startswith("--from="):
            source = self.stages[given[0].removeprefix("--from=")].root / given[1].lstrip("/")
            shutil.copytree(source, place, symlinks=True)
            return
        place.mkdir(parents=True, exist_ok=True)
        for pattern in given:
            assert any(fnmatch(pattern, sent) for sent in self._sent), f"{pattern} is ignored"
            found = list(self.context.glob(pattern))
            assert found, f"{pattern} matches nothing"
            for name in found:
                shutil.copy(name, place)
