"""
A simulated Proxmox whose guests are containers: ``python -m realnode.proxmox WORLD FOLDER BRIDGE``.

Writes ``FOLDER/urls.json`` once it listens, and ``FOLDER/ca.pem``; ends with SIGTERM.
"""

import asyncio
import json
import signal
import sys
from pathlib import Path

from envtest.table import KUBERNETES
from moxwell.clock import SystemClock
from moxwell.lab.proxmox import certs
from moxwell.lab.proxmox import simulator as serve
from moxwell.lab.templates import add_template
from realnode import driver_image, template
from realnode.guests import RealGuests


async def main(world: Path, folder: Path, bridge: str) -> None:
    clock = SystemClock()
    made = certs.make(folder, clock.now())
    regions = serve.load_regions(world, None, clock.now().timestamp())
    layers = [*driver_image.layers(), template.folder()]
    guests = RealGuests(layers, folder / "guests", bridge, regions)
    for region in regions.values():
        add_template(region, KUBERNETES)
    simulator = serve.Simulator(regions, clock, tls=made.context(), guest_os=guests)
    await simulator.start()
    urls = {f"{region}/{node}": url for (region, node), url in simulator.urls.items()}
    (folder / ".urls.json").write_text(json.dumps(urls))
    (folder / ".urls.json").rename(folder / "urls.json")
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await simulator.stop()
    await guests.stop_all()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
