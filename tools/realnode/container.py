"""
Boots a root file system as a guest: systemd in namespaces of its own, behind a veth pair.

The file system is an overlay over the template, so booting copies nothing. containerd gets a plain
folder, because overlayfs does not stack on itself. Processes end with their PID namespace. A bus
for SCSI disks, which not every kernel has, is a folder in ``/sys/bus`` (:mod:`realnode.disks`).
"""

import contextlib
import json
import os
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CGROUPS = Path("/sys/fs/cgroup")
PATIENCE_SECONDS = 60
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "fuse")
INIT = r"""
set -e
root=$1; shift
mount --make-rprivate /
mkdir -p "$root/upper" "$root/work" "$root/containerd" "$root/merged"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$root/upper,workdir=$root/work" "$root/merged"
cd "$root/merged"
mkdir -p var/lib/containerd .before
mount --bind "$root/containerd" var/lib/containerd
mount -t proc proc proc
mount -t sysfs sysfs sys
mkdir -p "$root/bus"
mount --rbind sys/bus "$root/bus"
mount -t tmpfs tmpfs sys/bus -o mode=755
for bus in "$root"/bus/*; do
  name=sys/bus/$(basename "$bus")
  if [ "$name" != sys/bus/scsi ]; then mkdir "$name"; mount --bind "$bus" "$name"; fi
done
mkdir -p sys/bus/scsi/devices
mount -t tmpfs tmpfs dev -o mode=755
shift
for name in "$@"; do
  if [ -e "/dev/$name" ]; then touch "dev/$name"; mount --bind "/dev/$name" "dev/$name"; fi
done
mknod dev/kmsg c 1 11  # kubelet reads the OOM kills of the kernel there
mkdir dev/pts dev/shm
mount -t devpts devpts dev/pts -o newinstance,ptmxmode=0666
ln -s pts/ptmx dev/ptmx
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
if [ -d /sys/fs/cgroup/memory ]; then
  mount -t tmpfs tmpfs sys/fs/cgroup
  for each in cpu cpuacct cpuset memory devices freezer blkio pids; do
    mkdir "sys/fs/cgroup/$each"; mount -t cgroup -o "$each" cgroup "sys/fs/cgroup/$each"
  done
  mkdir sys/fs/cgroup/systemd
  mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
else
  mount -t cgroup2 cgroup2 sys/fs/cgroup
fi
until ip link show eth0 >/dev/null 2>&1; do sleep 0.1; done
pivot_root . .before
umount -l /.before
mount --make-rshared /  # as systemd does on a machine: mounts in pods reach the kubelet
exec env -i container=moxwell PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --log-target=journal
"""


@dataclass(frozen=True)
class NodeContainer:
    """A guest that runs; ``pid`` is its systemd."""

    name: str
    folder: Path
    outer: "subprocess.Popen[bytes]"
    pid: int

    def run(self, *command: str, seconds: float = 60) -> "subprocess.CompletedProcess[str]":
        """Run a command in the guest."""
        return subprocess.run(
            ["nsenter", "--all", "--target", str(self.pid), *command],
            capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip

    @property
    def root(self) -> Path:
        """The root directory of the guest."""
        return Path(f"/proc/{self.pid}/root")

    def interfaces(self) -> list[dict[str, Any]]:
        """The network interfaces as ``ip -j address`` reports them."""
        found: list[dict[str, Any]] = json.loads(self.run("ip", "-j", "address").stdout or "[]")
        return found

    def shut_down(self, seconds: float = PATIENCE_SECONDS) -> bool:
        """Let systemd stop all services; returns whether it ended in time."""
        self.run("systemctl", "poweroff", "--no-block")
        try:
            self.outer.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> None:
        """End all processes and remove the cgroups; the files stay."""
        self.outer.kill()  # --kill-child ends systemd, and with it the PID namespace
        self.outer.wait()
        _remove_cgroups(self.name)


def start(
    name: str,
    layers: Sequence[Path],
    folder: Path,
    files: Mapping[str, bytes],
    mac: str,
    bridge: str,
) -> NodeContainer:
    """Boot a guest from layers, the topmost first, with additional files and a NIC on a bridge."""
    for path, data in files.items():
        file = folder / "upper" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    joined = _cgroups(name)
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--uts", "--ipc"]
    join = 'for f in $1; do echo $$ > "$f"; done; shift; exec "$@"'
    shell = ["sh", "-c", join, "sh", " ".join(joined), *words, "--cgroup", "bash", "-c", INIT]
    with (folder / "console.log").open("wb") as log:
        outer = subprocess.Popen(
            [*shell, "init", str(folder), ":".join(map(str, layers)), *DEVICES],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    pid = _child(outer)
    _connect(name, pid, mac, bridge)
    return NodeContainer(name, folder, outer, pid)


def hide(file: Path) -> None:
    """Let an overlay not show a file of the layers below."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    os.mknod(file, stat.S_IFCHR, os.makedev(0, 0))


def _child(outer: "subprocess.Popen[bytes]") -> int:
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end and outer.poll() is None:
        if found := children.read_text().split():
            return int(found[0])
        time.sleep(0.05)
    raise RuntimeError("the container ended before it started")


def _connect(name: str, pid: int, mac: str, bridge: str) -> None:
    end = f"v{name}"[:15]
    peer = ("peer", "name", "eth0", "address", mac, "netns", str(pid))
    subprocess.run(["ip", "link", "add", end, "type", "veth", *peer], check=True)
    subprocess.run(["ip", "link", "set", end, "master", bridge, "up"], check=True)


def _hierarchies() -> list[Path]:
    if not (CGROUPS / "memory").is_dir():
        return [CGROUPS]
    return sorted(p for p in CGROUPS.iterdir() if p.is_dir() and (p / "cgroup.procs").exists())


def _cgroups(name: str) -> list[str]:
    """Make a cgroup in each hierarchy; returns the files that a process joins by."""
    made = []
    for hierarchy in _hierarchies():
        group = hierarchy / f"moxwell-{name}"
        group.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if hierarchy.name == "cpuset":
                (group / setting).write_text((hierarchy / setting).read_text())
        made.append(str(group / "cgroup.procs"))
    return made


def _remove_cgroups(name: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    for hierarchy in _hierarchies():
        top = hierarchy / f"moxwell-{name}"
        while top.exists() and time.monotonic() < end:
            groups = sorted((p for p in top.rglob("*") if p.is_dir()), reverse=True)
            for group in [*groups, top]:
                with contextlib.suppress(OSError):  # processes that just end
                    group.rmdir()
            time.sleep(0.05)
