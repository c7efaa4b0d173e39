"""
Build a program of the table with the Go toolchain and install it in the cache.

The result is ``<cache>/<name>-<version>/<name>``, with the CRDs and webhook manifests of the module
under ``src``. A folder is built aside and renamed, so it is complete or missing; an existing one is
not built again.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from envtest import gomod, locate
from envtest.table import Tool

FLAGS = ("-mod=mod", "-trimpath", "-buildvcs=false")
Say = Callable[[str], None]


_OFFLINE = re.compile(
    r"dial tcp|no such host|connection refused|i/o timeout|proxyconnect|network is unreachable"
    r"|TLS handshake|disabled by GOPROXY"
)


class EnvtestError(Exception):
    """A program cannot be installed; the message says why and what to do."""


class Offline(EnvtestError):
    """The Go module registry does not answer, so the next program would fail too."""


@dataclass(frozen=True, slots=True)
class Go:
    """The Go toolchain of this machine."""

    path: str

    def run(self, *args: str, cwd: Path) -> str:
        command = ["nice", "-n", "15", self.path, *args]
        env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": " ".join(FLAGS), "GOWORK": "off"}
        done = subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            tail = "\n".join(done.stderr.strip().splitlines()[-8:])
            kind = Offline if _OFFLINE.search(done.stderr + done.stdout) else EnvtestError
            raise kind(f"go {args[0]} failed:\n{tail or done.stdout.strip()[-500:]}")
        return done.stdout

    def source(self, module: str, version: str, *, cwd: Path) -> Path:
        """Download a module; returns the folder of its source."""
        found = gomod.parse(self.run("mod", "download", "-json", f"{module}@{version}", cwd=cwd))
        return Path(found["Dir"])


def find_go() -> Go:
    path = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if path is None:
        raise EnvtestError("Go is not installed: install Go 1.26 or newer")
    return Go(path)


def _build(go: Go, tool: Tool, work: Path, out: Path) -> None:
    source = go.source(tool.module, tool.version, cwd=work)
    upstream = gomod.parse(go.run("mod", "edit", "-json", str(source / "go.mod"), cwd=work))
    (work / "go.mod").write_text(gomod.text(tool, upstream))
    _trust_sums(source, work)
    if tool.own:
        shutil.copyfile(Path(__file__).parent / tool.own / "main.go", work / "main.go")
    stamps = " ".join(f"-X {stamp}" for stamp in tool.stamps)
    flags = f"-s -w {stamps}".strip()
    go.run("build", "-ldflags", flags, "-o", str(out / tool.name), tool.target, cwd=work)
    _keep(source, tool.keep, out)
    for module, version, part in tool.keep_from:
        _keep(go.source(module, version, cwd=work), (part,), out)


def _trust_sums(source: Path, work: Path) -> None:
    """
    Take over the checksums of the module, which is verified itself.

    The checksum database does not have every version that a module requires.
    """
    if (source / "go.sum").exists():
        shutil.copyfile(source / "go.sum", work / "go.sum")
        (work / "go.sum").chmod(0o644)


def _keep(source: Path, parts: tuple[str, ...], out: Path) -> None:
    for part in parts:
        target = out / "src" / part
        shutil.copytree(source / part, target, copy_function=shutil.copyfile)
        for path in (target, *target.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


@contextmanager
def alone(cache: Path, name: str) -> Iterator[None]:
    """Let no other process make what has this name."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(go: Go, tool: Tool, *, say: Say) -> Path:
    """Build ``tool`` unless it is installed; returns the path of the program."""
    cache = locate.cache()
    with alone(cache, tool.name):
        if locate.is_installed(tool.name):
            return locate.program(tool.name)
        say(f"{tool.name} {tool.version}: building from {tool.module}")
        with tempfile.TemporaryDirectory(dir=cache, prefix=f".{tool.name}-") as scratch:
            work, out = Path(scratch) / "work", Path(scratch) / "out"
            work.mkdir()
            out.mkdir()
            (work / "go.mod").write_text("module envtest\n")
            _build(go, tool, work, out)
            out.rename(locate.folder(tool.name))
    return locate.program(tool.name)
