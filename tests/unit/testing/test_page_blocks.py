"""Commands in the code blocks of pages; and every block is run by a test or says why not."""

from pathlib import Path

import pytest

from support.page_blocks import (
    NotRun,
    PageCommand,
    PageFile,
    Step,
    missing_lines,
    page_steps,
    pages,
)

ROOT = Path(__file__).parents[3]
# Pages whose blocks are run by tests/e2e/test_pages.py, and those that another test runs.
RUN = {
    "README.md",
    "autoscaler.md",
    "howto-clusters.md",
    "howto-backup.md",
    "howto-verify.md",
}
ELSEWHERE = {
    "tutorial-tenant.md": "tests/e2e/test_readme_story.py",
    "simulator.md": "tests/e2e/test_simulator_page.py",
    "tutorial-storage.md": "tests/e2e/test_storage_tutorial.py",
    "tutorial-own-proxmox.md": "tests/e2e/test_own_pages.py",
    "howto-connect-proxmox.md": "tests/e2e/test_own_pages.py",
    "howto-templates.md": "tests/e2e/test_own_pages.py",
}

STEPS: dict[str, tuple[str, list[Step]]] = {
    "commands and output": (
        "```console\n$ moxwell status   # a comment\nall is well\n"
        "$ moxwell get x \\\n    -n y\n```\n",
        [PageCommand("moxwell status", ("all is well",)), PageCommand("moxwell get x     -n y")],
    ),
    "a script": ("```sh\nmake up      # installs\n```\n", [PageCommand("make up")]),
    "a file": ("```yaml\n# a.yaml\nkind: X\n```\n", [PageFile("a.yaml", "# a.yaml\nkind: X\n")]),
    "a part of a file": ("```yaml\nspec: {}\n```\n", []),
    "not run": (
        "<!-- not run: no registry -->\n```sh\nhelm\n```\n",
        [NotRun("helm", "no registry")],
    ),
    "output only": (
        "<!-- output of: moxwell up -->\n```console\nready\n```\n",
        [PageCommand("moxwell up", ("ready",))],
    ),
    "in a list": ("1. do\n   ```sh\n   ls\n   ```\n", [PageCommand("ls")]),
}


@pytest.mark.parametrize(("text", "steps"), STEPS.values(), ids=STEPS)
def test_steps_of_a_page(text: str, steps: list[Step]) -> None:
    assert page_steps(text) == steps


@pytest.mark.parametrize(
    ("shown", "output", "same"),
    [
        ("demo   Ready  12s", "demo Ready  3m", True),
        ("http://127.0.0.1:8480/…   (once)", "http://127.0.0.1:1/enter/x (once)", True),
        ("3 nodes", "2 nodes", False),
        ("demo-md0-0a98b1c421-jlbb4", "demo-md0-1111111111-abcde", True),
    ],
)  # fmt: skip
def test_output_is_compared_loosely(shown: str, output: str, same: bool) -> None:
    assert (missing_lines((shown,), f"other\n{output}\n") == []) is same


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda page: page.name)
def test_every_block_is_run_or_says_why_not(page: Path) -> None:
    steps = page_steps(page.read_text())
    if page.name in RUN:
        assert any(isinstance(step, PageCommand) for step in steps)
    elif page.name not in ELSEWHERE:
        assert [s.command for s in steps if isinstance(s, PageCommand)] == []
    assert all(len(s.reason) > 15 for s in steps if isinstance(s, NotRun))
