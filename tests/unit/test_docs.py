"""The documentation is consistent: links, paths, commands and options exist; the site builds."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "moxwell"
REFERENCE = ROOT / "docs" / "reference" / "cli.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_COMMAND = re.compile(r"`moxwell ([a-z-]+)")
_INVOCATION = re.compile(r"\bmoxwell [a-z]+[^`\n#|]*")
_OPTION = re.compile(r"(?<!\S)--[a-z][a-z-]+")
_PATH = re.compile(r"(?<![\w./{<$~-])(?:[\w-]+/)+[\w.-]*\.(?:py|md|proto|gz|js)\b")
_FOLDER = re.compile(r"`((?:[\w-]+/)+)`")
_TEST_FILE = re.compile(r"(?<!/)\btest_\w+\.py\b")
_IMPORTS = re.compile(r"^\| (`.*`) \| (.*)\|$", re.MULTILINE)
_PLANNED = "do not exist yet"
_OTHER_PROGRAMS = ("PYTHONPATH", "kubectl")  # lines with commands of others


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def exists(path: str, page: Path) -> bool:
    return any((base / path).exists() for base in (ROOT, SRC.parent, SRC, page.parent))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    prose = _CODE.sub("", page.read_text())
    links = [m for m in _LINK.findall(prose) if "://" not in m]
    lost = [link for link in links if not (page.parent / link).exists()]
    assert lost == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_of_files_exist(page: Path) -> None:
    lost = {path for path in _PATH.findall(page.read_text()) if not exists(path, page)}
    assert lost == set()


def test_folders_that_the_architecture_names_exist() -> None:
    page = ROOT / "docs" / "architecture.md"
    named = set(_FOLDER.findall(page.read_text()))
    assert len(named) > 10
    assert {folder for folder in named if not exists(folder, page)} == set()


def test_the_import_table_of_the_architecture_is_the_one_that_is_checked() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.partition("| package | may import |")[2].partition("\n\n")[0]
    shown = {
        package: set(re.findall(r"`(\w+)`", imports))
        for packages, imports in _IMPORTS.findall(table)
        for package in re.findall(r"`(\w+)`", packages)
    }
    checked = runpy.run_path(str(ROOT / "tests" / "unit" / "test_house.py"))
    may, leaves = checked["MAY"], checked["LEAVES"]
    assert shown == {package: may[package] for package in may.keys() - leaves}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_test_files_exist(page: Path) -> None:
    known = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(_TEST_FILE.findall(page.read_text())) - known == set()


def test_every_command_in_the_docs_exists() -> None:
    from typer.main import get_command

    from moxwell.cli.commands import make_app

    known = set(get_command(make_app()).commands)  # type: ignore[attr-defined]
    lines = [line for page in PAGES for line in page.read_text().splitlines()]
    named = {c for line in lines if _PLANNED not in line for c in _COMMAND.findall(line)}
    assert named <= known


@pytest.mark.parametrize("page", [p for p in PAGES if p != REFERENCE], ids=name_of)
def test_options_of_commands_exist(page: Path) -> None:
    known = set(re.findall(r"--[a-z][a-z-]+", REFERENCE.read_text()))
    text = page.read_text().replace("\\\n", " ")
    lines = [
        line for line in text.splitlines() if not any(word in line for word in _OTHER_PROGRAMS)
    ]
    calls = [call for line in lines for call in _INVOCATION.findall(line)]
    named = {option for call in calls for option in _OPTION.findall(call)}
    assert named - known == set()


def test_the_site_builds_strictly(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir"]
    done = subprocess.run(
        [*build, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
