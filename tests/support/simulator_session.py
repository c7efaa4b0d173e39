"""A simulated cluster with many storage types on virtual time, called with a ticket of root@pam."""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from moxwell.lab.proxmox.engine import Engine
from moxwell.lab.proxmox.guest import GuestOs
from moxwell.lab.proxmox.message import SimRequest
from moxwell.lab.proxmox.request_context import UploadedFile
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
          - {{volid: "shared:iso/cidata.iso", size: 1048576}}
          - {{volid: "shared:import/image.qcow2", size: 196624, virtual_size: 1G}}
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
class ApiResponse:
    status: int
    data: Any
    message: str
    errors: dict[str, str]


@dataclass(frozen=True, slots=True)
class TaskResult:
    status: str
    log: list[str]
    seconds: float


class SimulatorSession:
    """One region, called through its API as root@pam."""

    def __init__(self, version: str = "8.4.21", guest_os: GuestOs | None = None) -> None:
        self.clock = LoopClock()
        now = self.clock.now().timestamp()
        self.regions = read_world(WORLD.format(version=version), "test", now)
        self.engine = Engine(self.regions, self.clock, guest_os=guest_os)
        self.region = self.regions["r1"]
        self.headers: dict[str, str] = {}

    async def login(self) -> None:
        form = {"username": "root@pam", "password": "secret"}
        found = (await self.request("POST", "/access/ticket", form)).data
        self.headers = {
            "cookie": f"PVEAuthCookie={found['ticket']}",
            "csrfpreventiontoken": found["CSRFPreventionToken"],
        }

    async def request(
        self,
        method: str,
        path: str,
        params: dict[str, Any] | None = None,
        *,
        token: str = "",
        upload: UploadedFile | None = None,
    ) -> ApiResponse:
        headers = {"authorization": f"PVEAPIToken={token}"} if token else self.headers
        parts = tuple(path.strip("/").split("/"))
        request = SimRequest(method, parts, dict(params or {}), headers, upload)
        answer = await self.engine.handle("r1", request)
        body = answer.json() or {}
        message = str(body.get("message", "")).strip()
        return ApiResponse(answer.status, body.get("data"), message, body.get("errors") or {})

    async def get(self, path: str, /, **params: Any) -> Any:
        answer = await self.request("GET", path, params)
        assert answer.status == 200, answer
        return answer.data

    async def run_task(self, method: str, path: str, /, **params: Any) -> TaskResult:
        """Send a request and wait for its task."""
        started_at = self.clock.monotonic()
        answer = await self.request(method, path, params)
        assert answer.status == 200, answer
        task = await self.engine.runtimes["r1"].workers.wait(answer.data)
        return TaskResult(task.exitstatus or "", task.log, self.clock.monotonic() - started_at)

    async def vm(self, vmid: int = 100, /, **options: Any) -> dict[str, Any]:
        """Create a VM on n1; returns its configuration."""
        ended = await self.run_task("POST", "/nodes/n1/qemu", vmid=str(vmid), **options)
        assert ended.status == "OK", ended
        return await self.config(vmid)

    async def config(self, vmid: int = 100, node: str = "n1") -> dict[str, Any]:
        found: dict[str, Any] = await self.get(f"/nodes/{node}/qemu/{vmid}/config")
        return found

    async def put(self, path: str, /, **params: Any) -> ApiResponse:
        return await self.request("PUT", path, params)

    async def post(self, path: str, /, **params: Any) -> ApiResponse:
        return await self.request("POST", path, params)


def run_session(
    body: Callable[[SimulatorSession], Awaitable[None]],
    version: str = "8.4.21",
    guest_os: GuestOs | None = None,
) -> None:
    """Run a scenario against a new simulator on virtual time."""

    async def main() -> None:
        sim = SimulatorSession(version, guest_os)
        await sim.login()
        await body(sim)
        await sim.engine.close()

    run_virtual(main())


Scenario = Callable[[SimulatorSession], Coroutine[Any, Any, None]]
