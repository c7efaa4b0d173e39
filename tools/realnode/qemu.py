"""
Boots a root file system as a QEMU machine with a kernel of its own, in software emulation.

It reads the bootstrap ISO as a CD-ROM of virtio-scsi, and its guest agent is the genuine one.
"""

import base64
import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from realnode import kernel
from realnode.qmp import BUS

PATIENCE_SECONDS = 120
DISK_MIB, MONITOR = 8192, "monitor.sock"
FILL = r"""
set -e
mount --make-rprivate /
mkdir -p "$1/work" "$1/merged" "$1/upper"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$1/merged"
mke2fs -q -t ext4 -d "$1/merged" "$1/disk.img" "$3M"
"""


class AgentError(Exception):
    """The guest agent does not answer, or refuses a command."""


@dataclass(frozen=True)
class QemuMachine:
    """A machine that runs."""

    name: str
    folder: Path
    outer: "subprocess.Popen[bytes]"

    def agent(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """One command of the guest agent."""
        question = {"execute": f"guest-{command}", "arguments": dict(arguments or {})}
        mark = time.monotonic_ns() % 2**31
        sync = {"execute": "guest-sync", "arguments": {"id": mark}}
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(20)
                line.connect(str(self.folder / "agent.sock"))
                line.sendall(json.dumps(sync).encode() + b"\n")
                answers = line.makefile("rb")
                while json.loads(answers.readline() or b'{"return": 0}').get("return") != mark:
                    continue  # answers to earlier questions
                line.sendall(json.dumps(question).encode() + b"\n")
                answer = json.loads(answers.readline() or b"{}")
        except (OSError, ValueError) as error:
            raise AgentError(str(error)) from error
        if "return" not in answer:
            raise AgentError(str(answer.get("error", {}).get("desc", "no answer")))
        return answer["return"]

    def read_file(self, path: str) -> bytes:
        """A file of the guest, read by its agent."""
        handle = self.agent("file-open", {"path": path, "mode": "r"})
        try:
            found = self.agent("file-read", {"handle": handle, "count": 1 << 20})
        finally:
            self.agent("file-close", {"handle": handle})
        return base64.b64decode(found["buf-b64"])

    def shut_down(self, seconds: float = PATIENCE_SECONDS) -> bool:
        """Let the guest end itself; returns whether it ended in time."""
        with contextlib.suppress(AgentError):  # it may end before it answers
            self.agent("shutdown")
        try:
            self.outer.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> None:
        """Switch the machine off and remove its disk."""
        self.outer.kill()
        self.outer.wait()
        subprocess.run(["ip", "link", "delete", f"t{self.name}"], check=False, capture_output=True)
        (self.folder / "disk.img").unlink(missing_ok=True)


def start(
    name: str, layers: Sequence[Path], folder: Path, medium: bytes, mac: str, bridge: str, uuid: str
) -> QemuMachine:
    """Boot a machine from layers, the topmost first, with a bootstrap ISO and a NIC on a bridge."""
    lower = ":".join(map(str, [kernel.folder() / "layer", *layers]))
    fill = ["unshare", "--mount", "sh", "-c", FILL, "sh", str(folder), lower, str(DISK_MIB)]
    subprocess.run(fill, check=True, capture_output=True)
    (folder / "seed.iso").write_bytes(medium)
    tap = f"t{name}"
    subprocess.run(["ip", "tuntap", "add", tap, "mode", "tap"], check=True)
    subprocess.run(["ip", "link", "set", tap, "master", bridge, "up"], check=True)
    agent = f"socket,path={folder}/agent.sock,server=on,wait=off,id=agent"
    command = [
        kernel.PROGRAM, "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2",
        "-m", "2048", "-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio",
        "-uuid", uuid, "-kernel", str(kernel.folder() / "vmlinuz"),
        "-initrd", str(kernel.folder() / "initrd"),
        "-append", "console=ttyS0 quiet mitigations=off no_timer_check",
        "-drive", f"file={folder}/disk.img,format=raw,if=virtio,cache=unsafe",
        "-device", f"virtio-scsi-pci,id={BUS}",
        "-device", f"scsi-cd,bus={BUS}.0,scsi-id=31,drive=seed",
        "-qmp", f"unix:{folder}/{MONITOR},server=on,wait=off",
        "-drive", f"file={folder}/seed.iso,format=raw,if=none,id=seed,readonly=on",
        "-netdev", f"tap,id=net0,ifname={tap},script=no,downscript=no",
        "-device", f"virtio-net-pci,netdev=net0,mac={mac}",
        "-chardev", agent, "-device", "virtio-serial",
        "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
        "-device", "virtio-rng-pci",
    ]  # fmt: skip
    with (folder / "console.log").open("wb") as log:
        outer = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    return QemuMachine(name, folder, outer)
