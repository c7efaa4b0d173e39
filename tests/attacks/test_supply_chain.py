"""Attacks on what is installed: dependencies and images that change without a commit."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-dev.lock")
_ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)
_IMAGE = re.compile(
    r"""\bimage:\s*["']?([\w./-]+(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?)["']?\s*$"""
)
_TEXT = {".md", ".py", ".yaml", ".yml", ".toml", ".tpl", ".json", ".txt", ".sh", ""}


def entries(name: str) -> dict[str, str]:
    """The text of each entry of a lock file, by package."""
    text = re.sub(r"(?m)^#.*\n", "", (ROOT / name).read_text())
    parts = re.split(r"(?m)^(?=[A-Za-z0-9])", text)
    found = [(match[1], part) for part in parts if (match := _ENTRY.match(part))]
    return {canonicalize_name(package): part for package, part in found}


def project() -> dict[str, list[str]]:
    """The requirements of pyproject.toml, by lock file."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    run_time = content["dependencies"]
    development = run_time + content["optional-dependencies"]["dev"]
    return dict(zip(LOCKS, (run_time, development), strict=True))


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_a_version_and_hashes(lock: str) -> None:
    found = entries(lock)
    assert len(found) > 20
    assert [name for name, text in found.items() if "--hash=sha256:" not in text] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_satisfies_the_project(lock: str) -> None:
    found = entries(lock)
    wrong = []
    for text in project()[lock]:
        wanted = Requirement(text)
        match = _ENTRY.match(found.get(canonicalize_name(wanted.name), ""))
        if match is None or Version(match[2]) not in wanted.specifier:
            wrong.append(text)
    assert wrong == [], "run `make lock`"


def test_both_locks_agree() -> None:
    small, large = (entries(name) for name in LOCKS)
    versions = [{n: _version(text) for n, text in found.items()} for found in (small, large)]
    differ = {n for n in versions[0] if versions[1].get(n) != versions[0][n]}
    assert differ == set()


def _version(text: str) -> str:
    match = _ENTRY.match(text)
    return match[2] if match else ""


def test_make_installs_by_hash() -> None:
    text = (ROOT / "Makefile").read_text()
    assert "--require-hashes -r requirements.lock" in text
    assert "--require-hashes -r requirements-dev.lock" in text


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\n")
    names = [ROOT / name for name in listed if name]
    return [path for path in names if path.is_file() and path.suffix in _TEXT]


def test_no_image_has_the_tag_latest() -> None:
    paths = [p for p in tracked() if p != Path(__file__) and "tests" not in p.parts]
    if not paths:
        pytest.skip("not a git checkout")
    tag = ":" + "latest"
    found = [str(p.relative_to(ROOT)) for p in paths if re.search(rf"\S{tag}\b", p.read_text())]
    assert found == []


@pytest.mark.parametrize("folder", ["release", "charts"])
def test_every_image_of_a_manifest_has_a_version(folder: str) -> None:
    lines = [
        line
        for path in sorted((ROOT / folder).rglob("*.yaml"))
        for line in path.read_text().splitlines()
    ]
    images = [match[1] for line in lines if (match := _IMAGE.search(line))]
    assert [image for image in images if ":" not in image] == []
