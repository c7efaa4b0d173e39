"""A small simulated region on virtual time, and a way to ask it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from moxwell.lab.proxmox.engine import Engine
from moxwell.lab.proxmox.message import SimRequest, SimResponse
from moxwell.lab.proxmox.state import Region
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


class Bench:
    """An engine with one region, asked like the API."""

    def __init__(self, version: str = "8.4.21") -> None:
        self.clock = LoopClock()
        now = self.clock.now().timestamp()
        self.regions = read_world(WORLD.format(version=version), "world.yaml", now)
        self.engine = Engine(self.regions, self.clock)

    @property
    def region(self) -> Region:
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

    async def ask(self, method: str, path: str, /, **params: Any) -> Any:
        """The data of an answer that must be a good one."""
        answer = await self.send(method, path, **params)
        assert answer.status == 200, (answer.status, answer.reason, answer.body)
        return answer.json()["data"]

    async def done(self, method: str, path: str, /, **params: Any) -> str:
        """Ask, wait for the task, and return how it ended."""
        upid = await self.ask(method, path, **params)
        task = await self.engine.desks["r"].workers.wait(upid)
        assert task.exitstatus is not None
        return task.exitstatus

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


Story = Callable[[Bench], Coroutine[Any, Any, None]]


def tell(story: Story, version: str = "8.4.21") -> None:
    """Run a story on virtual time."""

    async def main() -> None:
        bench = Bench(version)
        try:
            await story(bench)
        finally:
            await bench.engine.close()

    run_virtual(main())
