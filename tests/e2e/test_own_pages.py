"""The pages for a person's own Proxmox, followed on a simulated new Proxmox of two hosts."""

import socket
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from envtest.plugin import require
from moxwell.embedded.ports import free_port
from support.lab_instance import Instance, own_ports
from support.page_blocks import PageCommand
from support.page_reader import PageReader

pytestmark = [pytest.mark.slow, pytest.mark.genuine, pytest.mark.xdist_group("own-pages")]
PASSWORD = "moxwell"
SIMULATOR = "moxwell sim --world bare --guests > sim.log 2>&1 &"
PAGES = ["howto-connect-proxmox.md", "howto-templates.md"]


class NewProxmox:
    """A reader of the pages beside a simulated Proxmox with a port of its own."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port("127.0.0.1")
        self.url = f"https://127.0.0.1:{self.port}"
        bare = (resources.files("moxwell.lab") / "proxmox/worlds/bare.yaml").read_text()
        (folder / "bare.yaml").write_text(bare.replace("28006", str(self.port)))
        instance = Instance(folder / "state", "proxmox")
        own_ports(instance.state.folder)
        answers = {
            "moxwell init": f"{self.url}\nhome\ny\n{PASSWORD}\nn\n",
            "moxwell template delete ubuntu --config moxwell.yaml": "y\n",
        }
        self.reader = PageReader(instance, folder, self.substituted, answers)
        self.answers = answers

    def substituted(self, command: str) -> str:
        text = command.replace("--world bare", "--world bare.yaml").replace("28006", str(self.port))
        if "pve1.example.org" in text:
            text = text.replace("https://pve1.example.org:8006", self.url)
            self.answers[text] = f"y\n{PASSWORD}\n"
        return text

    def run(self, command: str) -> None:
        self.reader.run(PageCommand(command))

    def start(self) -> None:
        """The simulator, if no page has started it."""
        if not self.reader.background:
            self.reader.shell(self.substituted(SIMULATOR))
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.2)
        raise AssertionError((self.reader.folder / "sim.log").read_text())


@pytest.fixture
def proxmox(tmp_path: Path) -> Iterator[NewProxmox]:
    require("kubectl")
    made = NewProxmox(tmp_path)
    made.start()
    try:
        yield made
    finally:
        made.reader.leave()


def test_the_tutorial_from_nothing_to_nothing(proxmox: NewProxmox) -> None:
    assert proxmox.reader.follow("docs/tutorial-own-proxmox.md") > 8
    listed = proxmox.reader.shell("moxwell template list --config moxwell.yaml -o json")
    assert listed == (0, "[]\n")


@pytest.mark.parametrize("page", PAGES)
def test_a_how_to_can_be_followed(proxmox: NewProxmox, page: str) -> None:
    if page != "howto-connect-proxmox.md":
        proxmox.run("moxwell init --url https://pve1.example.org:8006 --region north")
    assert proxmox.reader.follow(f"docs/{page}") > 0
