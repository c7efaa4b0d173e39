"""A simulator to talk to in tests: a small world, root's login, requests and tasks in one line."""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from moxwell.lab.proxmox.engine import Engine
from moxwell.lab.proxmox.guest import Inside
from moxwell.lab.proxmox.message import SimRequest
from moxwell.lab.proxmox.request_context import Upload
from moxwell.lab.proxmox.world import read_world
from moxwell.testing.loop import LoopClock, run_virtual

WORLD = """
regions:
  - name: r1
    version: {version}
    cluster: test
    pace: {{bandwidth: 100M, boot: 5, statd: 10, refusal: 0}}
    nodes:
      - {{name: n1, cpus: 4, memory: 16G}}
      - {{name: n2, cpus: 4, memory: 16G}}
    storages:
      - {{storage: local, type: dir, path: /var/lib/vz, capacity: 100G,
         content: [images, rootdir, iso, vztmpl, snippets, import, backup]}}
      - storage: shared
        type: nfs
        server: 192.0.2.9
        export: /srv
        capacity: 100G
        content: [images, rootdir, iso, vztmpl, snippets, import, backup]
        volumes:
          - {{volid: "shared:iso/seed.iso", size: 1048576}}
          - {{volid: "shared:import/seed.qcow2", size: 196624, virtual_size: 1G}}
          - {{volid: "shared:vztmpl/debian-12.tar.gz", size: 502}}
      - {{storage: thin, type: lvmthin, vgname: vg0, thinpool: data, capacity: 100G,
         content: [images, rootdir]}}
      - {{storage: thick, type: lvm, vgname: vg1, capacity: 4G, content: [images, rootdir]}}
      - {{storage: tank, type: zfspool, pool: rpool/data, capacity: 100G,
         content: [images, rootdir]}}
      - {{storage: ceph, type: rbd, pool: rbd, capacity: 100G, content: [images, rootdir]}}
      - {{storage: lin, type: drbd, resourcegroup: rg0, controller: 192.0.2.8, capacity: 100G,
         content: [images, rootdir]}}
    access:
      users:
        - {{userid: root@pam, password: secret}}
"""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    data: Any
    message: str
    errors: dict[str, str]


@dataclass(frozen=True, slots=True)
class Ended:
    status: str
    log: list[str]
    seconds: float


class Sim:
    """One region, seen through its API as root@pam."""

    def __init__(self, version: str = "8.4.21", inside: Inside | None = None) -> None:
        self.clock = LoopClock()
        now = self.clock.now().timestamp()
        self.regions = read_world(WORLD.format(version=version), "test", now)
        self.engine = Engine(self.regions, self.clock, inside=inside)
        self.region = self.regions["r1"]
        self.headers: dict[str, str] = {}

    async def login(self) -> None:
        form = {"username": "root@pam", "password": "secret"}
        found = (await self.ask("POST", "/access/ticket", form)).data
        self.headers = {
            "cookie": f"PVEAuthCookie={found['ticket']}",
            "csrfpreventiontoken": found["CSRFPreventionToken"],
        }

    async def ask(
        self,
        method: str,
        path: str,
        params: dict[str, Any] | None = None,
        *,
        token: str = "",
        upload: Upload | None = None,
    ) -> Answer:
        headers = {"authorization": f"PVEAPIToken={token}"} if token else self.headers
        parts = tuple(path.strip("/").split("/"))
        request = SimRequest(method, parts, dict(params or {}), headers, upload)
        answer = await self.engine.handle("r1", request)
        body = answer.json() or {}
        message = str(body.get("message", "")).strip()
        return Answer(answer.status, body.get("data"), message, body.get("errors") or {})

    async def get(self, path: str, /, **params: Any) -> Any:
        answer = await self.ask("GET", path, params)
        assert answer.status == 200, answer
        return answer.data

    async def done(self, method: str, path: str, /, **params: Any) -> Ended:
        """A request that leaves a task: how it ended."""
        began = self.clock.monotonic()
        answer = await self.ask(method, path, params)
        assert answer.status == 200, answer
        task = await self.engine.desks["r1"].workers.wait(answer.data)
        return Ended(task.exitstatus or "", task.log, self.clock.monotonic() - began)

    async def vm(self, vmid: int = 100, /, **options: Any) -> dict[str, Any]:
        """A new VM on n1; its configuration."""
        ended = await self.done("POST", "/nodes/n1/qemu", vmid=str(vmid), **options)
        assert ended.status == "OK", ended
        return await self.config(vmid)

    async def config(self, vmid: int = 100, node: str = "n1") -> dict[str, Any]:
        found: dict[str, Any] = await self.get(f"/nodes/{node}/qemu/{vmid}/config")
        return found

    async def put(self, path: str, /, **params: Any) -> Answer:
        return await self.ask("PUT", path, params)

    async def post(self, path: str, /, **params: Any) -> Answer:
        return await self.ask("POST", path, params)


def story(
    body: Callable[[Sim], Awaitable[None]], version: str = "8.4.21", inside: Inside | None = None
) -> None:
    """Run a story against a fresh simulator on virtual time."""

    async def main() -> None:
        sim = Sim(version, inside)
        await sim.login()
        await body(sim)
        await sim.engine.close()

    run_virtual(main())


Story = Callable[[Sim], Coroutine[Any, Any, None]]
