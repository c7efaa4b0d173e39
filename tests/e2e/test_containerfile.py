"""
The Containerfile, step by step in a bare Debian: what the image holds and how it starts.

No engine is needed, so layers, the registry and the digest of the base are not tested.
"""

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import moxwell
from envtest import debian
from envtest.plugin import skip_here
from support.containerfile import Build, Stage, instructions
from support.pod_process import require_namespaces

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packaging")]
ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Containerfile").read_text()
PROGRAMS = (  # of the node plugin of the CSI driver
    "blkid", "blockdev", "cryptsetup", "fsck", "fsck.ext4", "fstrim", "mkfs.ext4", "mkfs.xfs",
    "mount", "resize2fs", "umount", "xfs_growfs",
)  # fmt: skip


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """The last stage, built from a context with a new wheel."""
    require_namespaces()
    if not debian.archive().exists():
        skip_here("no bare Debian (`make envtest` makes it with mmdebstrap)")
    context = tmp_path_factory.mktemp("context")
    for name in ("requirements.lock", ".containerignore"):
        shutil.copy(ROOT / name, context)
    words = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(context / "dist")]
    subprocess.run([sys.executable, *words, str(ROOT)], check=True, capture_output=True)
    before = settings()
    build = Build(context, debian.archive(), tmp_path_factory.mktemp("image"))
    made = build.run(TEXT)
    assert settings() == before, "a step changed this machine"
    return made


def settings() -> str:
    """A digest of what a step could change by mistake: trusted CAs and the settings of apt."""
    files = [p for top in ("/etc/ssl/certs", "/etc/apt") for p in sorted(Path(top).rglob("*"))]
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file).encode() + (file.read_bytes() if file.is_file() else b""))
    return digest.hexdigest()


def test_the_image_starts_as_a_user_without_rights(image: Stage) -> None:
    assert image.user == "65532:65532"
    assert image.start("--version").stdout.strip() == f"moxwell {moxwell.__version__}"
    who = image.run("/opt/moxwell/bin/python", "-c", "import os; print(os.getuid(), os.getgid())")
    assert who.stdout.split() == ["65532", "65532"]
    assert image.run("touch", "/opt/moxwell/x").returncode != 0
    for command in (("operator",), ("csi", "controller"), ("csi", "node"), ("up",)):
        done = image.start(*command, "--help")
        assert done.returncode == 0, done.stderr
    assert "CustomResourceDefinition" in image.start("render", "crds").stdout


def found(image: Stage, *names: str) -> list[str]:
    """Those of the programs that are on the image's PATH."""
    ask = f"import shutil; print(*filter(shutil.which, {names!r}))"
    done = image.run("/opt/moxwell/bin/python", "-I", "-c", ask)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_image_holds_the_programs_of_the_node_plugin(image: Stage) -> None:
    assert found(image, *PROGRAMS) == list(PROGRAMS)


def test_the_image_holds_no_build_tools(image: Stage) -> None:
    tools = ("pip", "pip3", "cc", "gcc", "make", "uv", "git", "curl", "wget")
    assert found(image, "moxwell", *tools) == ["moxwell"]
    for module in ("pip", "setuptools", "wheel", "hatchling"):
        done = image.run("/opt/moxwell/bin/python", "-c", f"import {module}")
        assert "ModuleNotFoundError" in done.stderr, module
    assert not (image.root / "build").exists()
    assert list((image.root / "var/lib/apt/lists").glob("*_Packages*")) == []


def test_every_dependency_is_locked(image: Stage) -> None:
    names = "import importlib.metadata as m; print(*sorted(d.name for d in m.distributions()))"
    held = image.run("/opt/moxwell/bin/python", "-I", "-c", names).stdout.lower().split()
    pinned = re.findall(r"^([A-Za-z0-9._-]+)==", (ROOT / "requirements.lock").read_text(), re.M)
    known = {re.sub(r"[-_.]+", "-", name).lower() for name in pinned}
    assert "moxwell" in held
    assert {re.sub(r"[-_.]+", "-", name) for name in held} <= {*known, "moxwell"}


def test_the_base_has_a_version_and_steps_verify_hashes() -> None:
    rows = instructions(TEXT)
    base = next(rest for name, rest in rows if name == "ARG")
    assert re.fullmatch(r"BASE=docker\.io/library/debian:\d+\.\d+-slim", base)
    installs = [rest for name, rest in rows if name == "RUN" and "pip install" in rest]
    assert all("--require-hashes" in r or "--no-index --no-deps" in r for r in installs)
    assert [rest for name, rest in rows if name == "FROM"] == ["${BASE} AS build", "${BASE}"]
