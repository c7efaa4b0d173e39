"""A simulated cluster of three nodes on virtual time, called with the API token of root@pam."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from moxwell.lab.proxmox.engine import Engine
from moxwell.lab.proxmox.message import SimRequest, SimResponse
from moxwell.lab.proxmox.state import SimRegion
from moxwell.lab.proxmox.world import read_world
from moxwell.testing.loop import LoopClock, run_virtual

WORLD = """
regions:
  - name: r
    version: {version}
    cluster: c
    nodes:
      - {{name: n1, address: 192.0.2.1/24, cpus: 4}}
      - {{name: n2, address: 192.0.2.2/24, cpus: 4}}
      - {{name: n3, address: 192.0.2.3/24, cpus: 4}}
    storages:
      - {{storage: local, type: dir, path: /var/lib/vz, content: "images,iso", capacity: 100G}}
      - {{storage: shared, type: dir, path: /mnt/shared, shared: true,
          content: "images,iso", capacity: 100G}}
      - {{storage: thick, type: lvm, vgname: vg0, shared: true, content: images, capacity: 100G}}
    access:
      users:
        - {{userid: root@pam, password: secret}}
        - {{userid: joe@pve, password: joes-secret}}
      tokens:
        - {{token: root@pam!t, secret: s, privsep: false}}
        - {{token: joe@pve!full, secret: s, privsep: false}}
        - {{token: joe@pve!half, secret: s, privsep: true}}
"""
ROOT = {"authorization": "PVEAPIToken=root@pam!t=s"}


class SimulatedCluster:
    """An engine with one region, called through its API."""

    def __init__(self, version: str = "8.4.21") -> None:
        self.clock = LoopClock()
        now = self.clock.now().timestamp()
        self.regions = read_world(WORLD.format(version=version), "world.yaml", now)
        self.engine = Engine(self.regions, self.clock)

    @property
    def region(self) -> SimRegion:
        return self.regions["r"]

    async def send(
        self, method: str, path: str, /, *, headers: dict[str, str] | None = None, **params: Any
    ) -> SimResponse:
        node = params.pop("via", None)
        parts = tuple(part for part in path.split("/") if part)
        form = {name.replace("_", "-") if name != "max_restart" else name: value
                for name, value in params.items()}  # fmt: skip
        request = SimRequest(method, parts, form, ROOT if headers is None else headers, node=node)
        return await self.engine.handle("r", request)

    async def request(self, method: str, path: str, /, **params: Any) -> Any:
        """Send a request that must succeed; returns its data."""
        answer = await self.send(method, path, **params)
        assert answer.status == 200, (answer.status, answer.reason, answer.body)
        return answer.json()["data"]

    async def run_task(self, method: str, path: str, /, **params: Any) -> str:
        """Send a request and wait for its task; returns the exit status."""
        upid = await self.request(method, path, **params)
        task = await self.engine.runtimes["r"].workers.wait(upid)
        assert task.exitstatus is not None
        return task.exitstatus

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


Scenario = Callable[[SimulatedCluster], Coroutine[Any, Any, None]]


def run_scenario(scenario: Scenario, version: str = "8.4.21") -> None:
    """Run a scenario on virtual time."""

    async def main() -> None:
        sim = SimulatedCluster(version)
        try:
            await scenario(sim)
        finally:
            await sim.engine.close()

    run_virtual(main())
