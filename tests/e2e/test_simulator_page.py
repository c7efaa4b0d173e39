"""The commands of docs/simulator.md, as a reader types them, on a default world with free ports."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.page_blocks import PageCommand, page_steps

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("moxwell")
WORLD = ROOT / "src" / "moxwell" / "lab" / "proxmox" / "worlds" / "lab.yaml"
FIRST_HOST = re.compile(r"^east east1 (https://\S+)$")


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The URL of the first host; the certificates are in the folder of the test."""
    world = tmp_path / "world.yaml"
    world.write_text(re.sub(r"port: \d+", "port: 0", WORLD.read_text()))
    command = [str(PROGRAM), "sim", "--world", str(world)]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield next(found[1] for line in process.stdout if (found := FIRST_HOST.match(line)))
        process.terminate()


def test_the_requests_of_the_page_are_answered(tmp_path: Path, url: str) -> None:
    steps = page_steps((ROOT / "docs" / "simulator.md").read_text())
    commands = [step.command for step in steps if isinstance(step, PageCommand)]
    script = "\n".join(each for each in commands if not each.startswith("moxwell sim"))
    assert script.count("$CURL") > 10
    script = script.replace("https://127.0.0.1:18006", url).replace("curl -s", "curl -sS --fail")
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for said in ("k8s-node", "UPID:east1:", "root@pam", "no space left on device"):
        assert said in done.stdout
