"""A simulated new Proxmox of two hosts, started as the tutorial starts it, and a reader."""

import socket
import time
from importlib import resources
from pathlib import Path

from moxwell.embedded.ports import free_port
from support.lab_instance import Instance, own_ports
from support.page_blocks import PageCommand
from support.page_reader import PageReader

PASSWORD = "moxwell"
SIMULATOR = "moxwell sim --world bare --guests > sim.log 2>&1 &"


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
