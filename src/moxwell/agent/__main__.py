"""The program ``moxwell-agent``: ``run``, ``show`` and ``undo``."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from moxwell.agent import notes, topology
from moxwell.agent.apply import Host
from moxwell.agent.host_files import HostFiles
from moxwell.agent.marked_guests import find_guests
from moxwell.agent.plan import governor_file, plan_changes

RECORD = Path("/run/moxwell-agent/before.json")
INTERVAL_SECONDS = 5.0
PUBLISH_SECONDS = 600.0


def main(arguments: list[str] | None = None) -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="moxwell-agent", description=__doc__)
    parser.add_argument("command", choices=("run", "show", "undo"))
    parser.add_argument("--root", type=Path, default=Path("/"), help="root of the file system")
    parser.add_argument("--record", type=Path, default=RECORD, help="file of previous values")
    parser.add_argument("--node", default=os.uname().nodename.partition(".")[0])
    parser.add_argument("--no-publish", action="store_true", help="leave the node's notes alone")
    parser.add_argument(
        "--all-guests",
        action="store_true",
        help="keep guests that Moxwell does not own off the CPUs of pinned guests",
    )
    options = parser.parse_args(arguments)
    files = HostFiles(options.root)
    host = Host(files, options.record)
    if options.command == "show":
        print(json.dumps(topology.read_topology(files), indent=1))  # noqa: T201
        return 0
    if options.command == "undo":
        _log(host.undo())
        return 0
    node = None if options.no_publish else notes.NodeNotes(options.node)
    _run(files, host, node, others=options.all_guests)
    return 0


def one_pass(files: HostFiles, host: Host, *, others: bool = False) -> list[str]:
    """Bring the host to the state that its guests are configured for."""
    guests = find_guests(files, others=others)
    cpus = topology.read_cpus(files)
    governors = frozenset(cpu for cpu in cpus.online if files.read(governor_file(cpu)))
    devices = {device for guest in guests for device in guest.devices}
    return host.apply(plan_changes(guests, cpus, governors, _interrupts(files, devices)))


def publish(files: HostFiles, node: notes.NodeNotes) -> None:
    """Write the topology to the notes if it changed."""
    found = topology.read_topology(files)
    before = node.read()
    if notes.find_topology(before) != json.loads(json.dumps(found)):
        node.write(notes.with_topology(before, found))


def _interrupts(files: HostFiles, devices: set[str]) -> dict[str, tuple[int, ...]]:
    """Return the interrupts of devices; ``01:00`` means all functions of the device."""
    found = {}
    for device in devices:
        full = device if device.count(":") > 1 else f"0000:{device}"
        numbers: list[int] = []
        for address in files.names(topology.PCI):
            if address.startswith(full):
                names = files.names(f"{topology.PCI}/{address}/msi_irqs")
                numbers += [int(name) for name in names if name.isdecimal()]
        found[device] = tuple(sorted(numbers))
    return found


def _run(files: HostFiles, host: Host, node: notes.NodeNotes | None, *, others: bool) -> None:
    ended = _Ended()
    published = -PUBLISH_SECONDS
    while not ended.is_set:
        if node is not None and time.monotonic() - published >= PUBLISH_SECONDS:
            _publish(files, node)
            published = time.monotonic()
        _log(one_pass(files, host, others=others))
        time.sleep(INTERVAL_SECONDS)
    _log(host.undo())


def _publish(files: HostFiles, node: notes.NodeNotes) -> None:
    try:
        publish(files, node)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        _log([f"topology not published: {type(error).__name__}"])


class _Ended:
    """Becomes set when systemd ends the service."""

    def __init__(self) -> None:
        self.is_set = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.is_set = True


def _log(lines: list[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
