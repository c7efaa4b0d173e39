"""Wheel and source distribution: built, looked into, installed alone, and run."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import moxwell

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packaging")]
ROOT = Path(__file__).parents[2]
DATA = (".json", ".yaml", ".css", ".html", ".js", ".svg", ".typed")


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=300, cwd="/", env=env
    )
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both distributions, by the backend that is installed: nothing is downloaded."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment of its own with the wheel; dependencies are lent by ours."""
    folder = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    wheel = next(built.glob("*.whl"))
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--no-deps", "--no-index", wheel)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def bare(folder: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}


def test_the_wheel_holds_the_package_whole_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    source = ROOT / "src"
    wanted = {
        str(p.relative_to(source))
        for p in (source / "moxwell").rglob("*")
        if p.is_file() and (p.suffix == ".py" or p.name.endswith(DATA))
    }
    assert {"moxwell/py.typed", "moxwell/lab/lab.yaml"} <= wanted <= names
    tops = {name.split("/")[0] for name in names}
    assert tops == {"moxwell", f"moxwell-{moxwell.__version__}.dist-info"}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.endswith(".pyc")]


def test_the_source_distribution_is_the_project(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    for name in (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "Makefile",
        "Containerfile",
    ):
        assert name in names
    for folder in ("src/moxwell", "tests/unit", "tests/e2e", "docs", "charts", "tools/envtest"):
        assert any(name.startswith(f"{folder}/") for name in names), folder
    strange = [n for n in names if n.startswith(("shared", ".venv", ".git/")) or "__pycache__" in n]
    assert strange == []


def test_the_installed_command_speaks_for_itself(installed: Path, tmp_path: Path) -> None:
    command, env = installed / "bin" / "moxwell", bare(tmp_path)
    assert run(command, "--version", env=env).strip() == f"moxwell {moxwell.__version__}"
    crds = [doc for doc in yaml.safe_load_all(run(command, "render", "crds", env=env)) if doc]
    assert {doc["kind"] for doc in crds} == {"CustomResourceDefinition"}
    asked = "import moxwell; print(moxwell.__file__)"
    where = run(installed / "bin" / "python", "-c", asked, env=env)
    assert Path(where.strip()).is_relative_to(installed)


@pytest.fixture
def lab(installed: Path, tmp_path: Path) -> Iterator[str]:
    command, env = installed / "bin" / "moxwell", bare(tmp_path)
    yield run(command, "up", "--no-demo", "--name", "wheel", env=env)
    run(command, "down", "--name", "wheel", "--purge", env=env)
    assert not any((tmp_path / "state" / "moxwell").iterdir())


def test_the_lab_starts_from_the_wheel_alone(lab: str) -> None:
    assert "Dashboard" in lab
    assert "cluster create" in lab


@pytest.mark.parametrize(
    "install",
    [
        pytest.param(("pipx", "install"), id="pipx"),
        pytest.param(("uv", "tool", "install", "--no-python-downloads", "--python"), id="uv"),
    ],
)
def test_the_wheel_is_installed_as_a_tool(
    built: Path, tmp_path: Path, install: tuple[str, ...]
) -> None:
    """As the page about installing says; dependencies come from the registry."""
    tool = Path(sys.executable).parent / install[0]
    words = (*install[1:], sys.executable) if install[0] == "uv" else install[1:]
    places = {
        "PIPX_HOME": "pipx",
        "PIPX_BIN_DIR": "bin",
        "UV_TOOL_DIR": "uv",
        "XDG_BIN_HOME": "bin",
    }
    settings = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "UV_", "SSL_"))}
    caches = {"PIP_CACHE_DIR": cache("pip"), "UV_CACHE_DIR": cache("uv")}
    folders = {name: str(tmp_path / folder) for name, folder in places.items()}
    env = {**settings, **bare(tmp_path), **caches, **folders, "PIPX_DEFAULT_PYTHON": sys.executable}
    wheel = next(built.glob("*.whl"))
    page = (ROOT / "docs" / "howto-install.md").read_text()
    assert f"install dist/{wheel.name}" in page
    run(tool, *words, wheel, env=env)
    command = tmp_path / "bin" / "moxwell"
    assert run(command, "--version", env=env).strip() == f"moxwell {moxwell.__version__}"
    assert "CustomResourceDefinition" in run(command, "render", "crds", env=env)


def cache(tool: str) -> str:
    """The cache of a tool, shared by runs: nothing is downloaded twice."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return str(Path(base) / tool)


def unit() -> dict[str, str]:
    """The settings of the systemd unit."""
    lines = (ROOT / "release" / "systemd" / "moxwell@.service").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def test_the_systemd_unit_starts_the_standalone_mode(tmp_path: Path) -> None:
    """Its command, with an instance name, refuses a missing file: all its options are known."""
    words = unit()["ExecStart"].replace("%i", "cloud").split()
    assert words[0] == "/usr/local/bin/moxwell"
    missing = tmp_path / "cloud.yaml"
    given = [word.replace("/etc/moxwell/cloud.yaml", str(missing)) for word in words[1:]]
    command = [sys.executable, "-m", "moxwell", *given]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=bare(tmp_path), timeout=120
    )
    assert done.returncode not in (0, 2)
    assert f"{missing} does not exist" in done.stderr
    assert "XDG_STATE_HOME=/var/lib" in unit()["Environment"].split()
    assert unit()["StateDirectory"] == "moxwell"


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd")
    text = (ROOT / "release" / "systemd" / "moxwell@.service").read_text()
    file = tmp_path / "moxwell@cloud.service"
    file.write_text(text.replace("/usr/local/bin/moxwell", sys.executable))
    done = subprocess.run(
        [analyze, "verify", "--man=no", "--recursive-errors=no", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if file.name in line] == []
