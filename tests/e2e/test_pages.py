"""The pages of the documentation as a reader follows them: each command, in order, in one lab."""

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from envtest import locate
from envtest.plugin import require
from support.lab_inspector import quick_world
from support.lab_instance import COMMAND, Instance, own_ports
from support.page_blocks import MAX_FOLLOW, NotRun, PageCommand, PageFile, missing_lines, page_steps

pytestmark = [pytest.mark.slow, pytest.mark.genuine, pytest.mark.xdist_group("pages")]
ROOT = Path(__file__).parents[2]
SECONDS, PATIENCE = 300, 240
READS = re.compile(r"moxwell (status|explain|get) |moxwell status$|kubectl .*get ")


@dataclass
class Reader:
    """A shell in a folder of its own, with one instance named ``lab``."""

    lab: Instance
    folder: Path
    world: Path

    @property
    def env(self) -> dict[str, str]:
        path = f"{COMMAND.parent}:{locate.program('kubectl').parent}:{os.environ['PATH']}"
        own = {"PATH": path, "EDITOR": "true", "HOME": str(self.folder), "COLUMNS": "80"}
        return {**self.lab.env, **own}

    def follow(self, page: str) -> int:
        """Do everything on a page; returns the number of commands."""
        count = 0
        for step in page_steps((ROOT / page).read_text()):
            match step:
                case PageFile():
                    (self.folder / step.name).write_text(step.text)
                case PageCommand():
                    self.run(step)
                    count += 1
                case NotRun():
                    continue
        return count

    def run(self, step: PageCommand) -> None:
        """Run one command as the page shows it; its output must have the shown lines."""
        command = self.substituted(step.command)
        code, output = self.shell(command, follows=step.follows)
        end = time.monotonic() + PATIENCE
        while READS.match(command) and missing_lines(step.output, output):
            if time.monotonic() > end:
                break
            time.sleep(1)  # a reader repeats a command that shows a state
            code, output = self.shell(command, follows=step.follows)
        assert "Traceback" not in output, output
        told = f"$ {command}\n{output}\n{self.lab.log() if code else ''}"
        assert (code != 0) == step.must_fail, told
        assert missing_lines(step.output, output) == [], told

    def substituted(self, command: str) -> str:
        """The lab of the test has short durations; a backup has the name of one that exists."""
        if command == "moxwell up":
            return f"moxwell up --world {shlex.quote(str(self.world))}"
        name = re.search(r"--database (\S+)", command)
        folder = self.lab.state.folder
        if name:
            folder = folder / "control-planes" / f"tenant-{name[1]}" / name[1]
        if "moxwell restore backups/" in command:
            newest = max((folder / "backups").glob("*.db"))
            return re.sub(r"backups/\S+\.db", shlex.quote(str(newest)), command)
        return command.replace("/mnt/backups", str(self.folder / "copies"))

    def shell(self, command: str, *, follows: bool) -> tuple[int, str]:
        process = subprocess.Popen(
            ["env", "--default-signal=INT", "bash", "-c", command],
            cwd=self.folder, env=self.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=MAX_FOLLOW if follows else SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            output, _ = process.communicate(timeout=30)
            return (0 if follows else 1), output
        return process.returncode, output


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    require("kubectl")
    folder = tmp_path_factory.mktemp("pages")
    made = Reader(Instance(folder / "state", "lab"), folder, quick_world(folder))
    own_ports(made.lab.state.folder)
    (folder / "copies").mkdir()
    try:
        made.follow("README.md")
        yield made
    finally:
        made.lab.run("down", "--purge", check=False)


@pytest.mark.parametrize(
    "page", ["howto-clusters.md", "tutorial-tenant.md", "howto-verify.md", "howto-backup.md"]
)
def test_a_page_can_be_followed(reader: Reader, page: str) -> None:
    assert reader.follow(f"docs/{page}") > 2
