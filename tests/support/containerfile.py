"""
Builds a Containerfile without an engine: each stage is a folder, each RUN a chroot into it.

Knows the instructions that ours uses and refuses others. Packages come from where this machine gets
them: copies of its settings of apt and pip are mounted, read-only, while a step runs.
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

BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
MACHINE = "/run/machine"  # in a step: copies of this machine's settings, read-only
COPIED = ("/etc/hosts", "/etc/pip.conf", "/etc/resolv.conf")
DEVICES = "null zero random urandom"
ENTER = f"""
set -e
root=$1 given=$2; shift 2
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/dev"
for name in {DEVICES}; do touch "$root/dev/$name"; mount --bind /dev/$name "$root/dev/$name"; done
if [ -n "$given" ]; then
  mount -t tmpfs tmpfs "$root/run"
  mkdir "$root{MACHINE}"
  mount --bind -o ro "$given" "$root{MACHINE}"
  mount --bind -o ro "$given/apt" "$root/etc/apt"
fi
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
        user, _, group = self.user.partition(":")
        ids = [f"--reuid={user}", f"--regid={group or user}", "--clear-groups", "--no-new-privs"]
        drop = ["setpriv", *ids] if user and not build else []
        given = str(self._machine()) if build else ""
        unshare = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"]
        command = [*unshare, "sh", "-c", ENTER, "sh", str(self.root), given]
        env = {**(_network() if build else {}), **self.env}
        return subprocess.run(
            [*command, *drop, *words], capture_output=True, text=True, check=False, env=env
        )

    def _machine(self) -> Path:
        """
        Copies of how this machine reaches its registries.

        Copies, because scripts of packages run as root: ca-certificates writes the bundle anew.
        """
        folder = self.root.with_name(f"{self.root.name}-machine")
        secrets = shutil.ignore_patterns("auth.conf*")
        shutil.copytree("/etc/apt", folder / "apt", dirs_exist_ok=True, ignore=secrets)
        if BUNDLE.exists():
            shutil.copy(BUNDLE, folder / "ca.crt")
            setting = f'Acquire::https::CAInfo "{MACHINE}/ca.crt";\n'
            (folder / "apt" / "apt.conf.d" / "zz-machine").write_text(setting)
        for path in map(Path, COPIED):
            if path.exists():
                target = self.root / path.relative_to("/")
                target.unlink(missing_ok=True)
                shutil.copy(path, target)
        return folder

    def start(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run the entrypoint with arguments."""
        return self.run(*self.entrypoint, *words)


def _network() -> dict[str, str]:
    """Variables of a step: the settings of pip, and the CAs that this machine trusts."""
    given = {k: v for k, v in os.environ.items() if k.startswith("PIP_")}
    trusted = dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE"), f"{MACHINE}/ca.crt")
    return {**given, **(trusted if BUNDLE.exists() else {}), "DEBIAN_FRONTEND": "noninteractive"}


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
