"""The documentation holds together: links lead somewhere, pages build, every command is real."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_COMMAND = re.compile(r"`moxwell ([a-z]+)")
_PLANNED = "do not exist yet"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    prose = _CODE.sub("", page.read_text())
    links = [m for m in _LINK.findall(prose) if "://" not in m]
    lost = [link for link in links if not (page.parent / link).exists()]
    assert lost == []


def test_every_command_in_the_docs_exists() -> None:
    from typer.main import get_command

    from moxwell.cli.commands import app

    known = set(get_command(app).commands)  # type: ignore[attr-defined]
    lines = [line for page in PAGES for line in page.read_text().splitlines()]
    named = {c for line in lines if _PLANNED not in line for c in _COMMAND.findall(line)}
    assert named <= known


def test_the_site_builds_strictly(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir"]
    done = subprocess.run(
        [*build, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
