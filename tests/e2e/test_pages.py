"""The pages of the documentation as a reader follows them: each command, in order, in one lab."""

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envtest.plugin import require
from support.lab_inspector import quick_world
from support.lab_instance import Instance, own_ports
from support.page_reader import PageReader

pytestmark = [pytest.mark.slow, pytest.mark.genuine, pytest.mark.xdist_group("pages")]


def substitution(lab: Instance, folder: Path, world: Path) -> Callable[[str], str]:
    """The lab of the test has short durations; a backup has the name of one that exists."""

    def substituted(command: str) -> str:
        if command == "moxwell up":
            return f"moxwell up --world {shlex.quote(str(world))}"
        name = re.search(r"--database (\S+)", command)
        databases = lab.state.folder
        if name:
            databases = databases / "control-planes" / f"tenant-{name[1]}" / name[1]
        if "moxwell restore backups/" in command:
            newest = max((databases / "backups").glob("*.db"))
            return re.sub(r"backups/\S+\.db", shlex.quote(str(newest)), command)
        return command.replace("/mnt/backups", str(folder / "copies"))

    return substituted


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageReader]:
    require("kubectl")
    folder = tmp_path_factory.mktemp("pages")
    lab = Instance(folder / "state", "lab")
    made = PageReader(lab, folder, substitution(lab, folder, quick_world(folder)))
    own_ports(lab.state.folder)
    (folder / "copies").mkdir()
    try:
        made.follow("README.md")
        yield made
    finally:
        lab.run("down", "--purge", check=False)


@pytest.mark.parametrize(
    "page", ["howto-clusters.md", "howto-verify.md", "howto-backup.md", "autoscaler.md"]
)
def test_a_page_can_be_followed(reader: PageReader, page: str) -> None:
    assert reader.follow(f"docs/{page}") > 2
