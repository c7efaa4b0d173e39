"""
A simulated Proxmox in a process of its own, whose guests join as nodes.

Run as ``python simulated_proxmox.py WORLD FOLDER SHIFT``; its clock is ``SHIFT`` seconds ahead.
Writes ``FOLDER/urls.json`` once it listens, and ``FOLDER/ca.pem``.
"""

import asyncio
import json
import signal
import sys
from datetime import datetime, timedelta
from pathlib import Path

from moxwell.clock import SystemClock
from moxwell.kube.transport import KubeTransport
from moxwell.lab.guests.guest_runner import GuestRunner
from moxwell.lab.proxmox import certs
from moxwell.lab.proxmox import simulator as serve


class Shifted(SystemClock):
    """A clock that is ahead."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._ahead = timedelta(seconds=seconds)

    def now(self) -> datetime:
        return super().now() + self._ahead


async def main(world: Path, folder: Path, shift: float) -> None:
    clock = Shifted(shift)
    made = certs.make(folder, SystemClock().now())
    guests = GuestRunner(KubeTransport, SystemClock())
    regions = serve.load_regions(world, None, clock.now().timestamp())
    simulator = serve.Simulator(regions, clock, tls=made.context(), guest_os=guests)
    await simulator.start()
    urls = {f"{region}/{node}": url for (region, node), url in simulator.urls.items()}
    (folder / ".urls.json").write_text(json.dumps(urls))
    (folder / ".urls.json").rename(folder / "urls.json")
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    living = asyncio.create_task(guests.run())
    await ended.wait()
    living.cancel()
    await simulator.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])))
