"""
Finds running guests, and reads from their configuration on which CPUs their threads run.

A guest is marked by the tag ``moxwell`` and a line in its description: ``moxwell-cpus: 0,16,1,17
emulator=2-3``. The CPUs stand in the order of the vCPUs. A guest with the tag and without the line
is shared: its threads avoid the CPUs of pinned guests, and a vCPU whose memory is bound to a NUMA
node (``numaN``) runs on the CPUs of that node.

If the operator asks for it, guests without the tag keep off the CPUs of pinned guests too; those
with an ``affinity`` of their own are left alone.
"""

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from moxwell.agent.cpu_lists import parse_list
from moxwell.agent.host_files import HostFiles

TAG = "moxwell"
CONFIGS = "etc/pve/qemu-server"
PIDS = "run/qemu-server"
_LINE = re.compile(
    r"^moxwell-cpus: (?P<cpus>[0-9,-]+)(?: emulator=(?P<emulator>[0-9,-]+))?\s*$", re.M
)
_VCPU = re.compile(r"^CPU (\d+)/(?:KVM|TCG)$")
_SLOT = re.compile(r"^hostpci\d+: (?:host=)?([0-9a-f:.]+)", re.M)


@dataclass(frozen=True)
class GuestThread:
    """A thread of a guest's QEMU; ``vcpu`` is -1 for emulator and I/O threads."""

    number: int
    vcpu: int


@dataclass(frozen=True)
class MarkedGuest:
    """A running guest with the tag."""

    vmid: int
    pid: int
    cpus: tuple[int, ...]
    emulator: tuple[int, ...]
    threads: tuple[GuestThread, ...]
    devices: tuple[str, ...] = ()
    nodes: dict[int, tuple[int, ...]] = field(default_factory=dict)  # of the host, by vCPU


def find_guests(files: HostFiles, *, others: bool = False) -> tuple[MarkedGuest, ...]:
    """Return the marked guests that run, by VMID; with ``others`` also those without the tag."""
    found = []
    for name in files.names(PIDS):
        vmid, _, suffix = name.partition(".")
        if suffix == "pid" and vmid.isdecimal():
            guest = _guest(files, int(vmid), files.number(f"{PIDS}/{name}"), others)
            if guest is not None:
                found.append(guest)
    return tuple(sorted(found, key=lambda guest: guest.vmid))


def _guest(files: HostFiles, vmid: int, pid: int, others: bool) -> MarkedGuest | None:
    config = files.read(f"{CONFIGS}/{vmid}.conf").partition("\n[")[0]  # snapshots follow
    if pid <= 0:
        return None
    if TAG not in _tags(config):
        chosen = re.search(r"^affinity: ", config, re.M)
        shared = others and config and not chosen
        return MarkedGuest(vmid, pid, (), (), _threads(files, pid)) if shared else None
    description = unquote("\n".join(re.findall(r"^#(.*)$", config, re.M)))
    asked = _LINE.search(description)
    return MarkedGuest(
        vmid,
        pid,
        parse_list(asked["cpus"]) if asked else (),
        parse_list(asked["emulator"] or "") if asked else (),
        _threads(files, pid),
        tuple(_SLOT.findall(config)),
        _nodes(config),
    )


def _nodes(config: str) -> dict[int, tuple[int, ...]]:
    """Return the NUMA nodes of the host that the memory of each vCPU is bound to."""
    found: dict[int, tuple[int, ...]] = {}
    if not re.search(r"^numa: 1\s*$", config, re.M):
        return found
    for text in re.findall(r"^numa\d+: (.*)$", config, re.M):
        options = dict(part.partition("=")[::2] for part in text.split(","))
        hosts = parse_list(options.get("hostnodes", "").replace(";", ","))
        if hosts and options.get("policy") == "bind":
            found |= dict.fromkeys(parse_list(options.get("cpus", "").replace(";", ",")), hosts)
    return found


def _tags(config: str) -> set[str]:
    found = re.search(r"^tags: (.*)$", config, re.M)
    return set(re.split(r"[;, ]+", found[1])) if found else set()


def _threads(files: HostFiles, pid: int) -> tuple[GuestThread, ...]:
    threads = []
    for name in files.names(f"proc/{pid}/task"):
        if name.isdecimal():
            named = _VCPU.match(files.read(f"proc/{pid}/task/{name}/comm"))
            threads.append(GuestThread(int(name), int(named[1]) if named else -1))
    return tuple(sorted(threads, key=lambda thread: thread.number))
