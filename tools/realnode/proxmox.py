"""
A simulated Proxmox with genuine guests: ``python -m realnode.proxmox`` with five arguments.

The world file, the folder of the files that it writes, the bridge, the kind of the guests, and the
address to listen on, which pods of guests can reach. Kinds are ``container``, ``bare`` (a container
without a CNI configuration), ``control-plane`` (such a container with the images of a control
plane) and ``qemu``. The folder has ``urls.json`` once it listens, and ``ca.pem``; it ends with
SIGTERM.
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
from moxwell.lab.proxmox.state import SimRegion
from moxwell.lab.templates import add_template
from realnode import control_plane_images, driver_image, template
from realnode.guests import RealGuests
from realnode.qemu_guests import QemuGuests


async def main(world: Path, folder: Path, bridge: str, kind: str, host: str) -> None:
    clock = SystemClock()
    made = certs.make(folder, clock.now(), (host,))
    regions = serve.load_regions(world, None, clock.now().timestamp())
    guests = guests_of(kind, folder / "guests", bridge, regions)
    for region in regions.values():
        add_template(region, KUBERNETES)
    simulator = serve.Simulator(regions, clock, host, made.context(), guests)
    await simulator.start()
    urls = {f"{region}/{node}": url for (region, node), url in simulator.urls.items()}
    (folder / ".urls.json").write_text(json.dumps(urls))
    (folder / ".urls.json").rename(folder / "urls.json")
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await simulator.stop()
    await guests.stop_all()


def guests_of(
    kind: str, folder: Path, bridge: str, regions: dict[str, SimRegion]
) -> RealGuests | QemuGuests:
    """Containers, or QEMU machines."""
    if kind == "qemu":
        layers = [*driver_image.layers(addons=False), template.folder()]
        return QemuGuests(layers, folder, bridge, regions)
    layers, image = [*driver_image.layers(), template.folder()], [template.image_folder()]
    if kind == "control-plane":
        layers.insert(0, control_plane_images.folder())
    without = () if kind == "container" else (template.NETWORK,)
    return RealGuests(layers, folder, bridge, regions, image, without=without)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:6]))
