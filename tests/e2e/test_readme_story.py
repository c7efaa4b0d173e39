"""
Somebody who has read only the README gets a tenant with a quota, a volume, a lost region and its
return, an upgrade, refused mistakes, and deletes everything.

The README is followed, then the first page that it links to, in a lab of its own.
"""

import re
from pathlib import Path

import pytest

from envtest.plugin import require
from support.lab_inspector import quick_world
from support.lab_instance import Instance, own_ports
from support.page_blocks import PageCommand, page_steps
from support.page_reader import PageReader

pytestmark = [pytest.mark.slow, pytest.mark.genuine, pytest.mark.xdist_group("pages")]
ROOT = Path(__file__).parents[2]
TABLE_LINK = re.compile(r"^\| .*?\]\((docs/[\w-]+\.md)\)", re.MULTILINE)
STORY = {  # what the README promises, and the command that gets it
    "a lab": r"moxwell up",
    "a tenant with a quota": r"moxwell apply -f red\.yaml",
    "a volume": r"kubectl .* apply -f db\.yaml",
    "a quota that holds": r"moxwell cluster scale blog worker 9 ",
    "a lost region": r"moxwell lab disconnect \w+",
    "its return": r"moxwell lab connect \w+",
    "an upgrade": r"moxwell cluster upgrade blog v[\d.]+ -n tenant-red",
    "a deleted cluster": r"moxwell cluster delete blog -n tenant-red",
    "a deleted tenant": r"moxwell delete tenant red",
    "nothing left": r"moxwell down --purge",
}


def first_page() -> str:
    """The first page of the README's table."""
    found = TABLE_LINK.search((ROOT / "README.md").read_text())
    assert found is not None
    return found[1]


def commands(*pages: str) -> list[PageCommand]:
    steps = [step for page in pages for step in page_steps((ROOT / page).read_text())]
    return [step for step in steps if isinstance(step, PageCommand)]


def test_the_readme_leads_to_each_step_in_order() -> None:
    found = iter([step.command for step in commands("README.md", first_page())])
    missing = [
        name for name, wanted in STORY.items() if not any(re.match(wanted, each) for each in found)
    ]
    assert missing == []


def test_each_kind_of_mistake_is_refused() -> None:
    refused = "\n".join(line for step in commands(first_page()) for line in step.output)
    for said in ("unknown field", "does not exist", "quota of", "skips minor versions"):
        assert said in refused


def test_the_story_of_the_readme(tmp_path: Path) -> None:
    require("kubectl")
    lab = Instance(tmp_path / "state", "lab")
    world = quick_world(tmp_path)

    def substituted(command: str) -> str:
        return f"moxwell up --world {world}" if command == "moxwell up" else command

    reader = PageReader(lab, tmp_path, substituted)
    own_ports(lab.state.folder)
    try:
        reader.follow("README.md")
        assert reader.follow(first_page()) > 25
        assert not lab.state.folder.exists()
    finally:
        lab.run("down", "--purge", check=False)
