"""
Benchmark of the Proxmox client against proxmoxer, and the cost of an idle region. Ratios only.

Run ``python bench/pve.py``. A simulator runs in a second process; each client runs in its own
process and is charged the CPU of its requests without imports. Exits with 1 if a limit is missed.
"""

import asyncio
import gc
import json
import resource
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

REQUESTS = 3000
ROUNDS = 3
GUESTS = 20
AT_ONCE = 16
SIZES = (10, 1_000, 10_000)
LEAST_RATIO = 4.0
MOST_GROWTH = 12.5  # linear is 10; larger lists also leave the processor's caches
TOKEN_ID, SECRET = "root@pam!bench", "11111111-2222-4333-8444-555555555555"


def paths() -> list[str]:
    """Return the request mix of all clients: lists, configurations, states."""
    mix = ["/nodes/pve1/qemu", "/cluster/resources"]
    mix += [f"/nodes/pve1/qemu/{100 + n}/config" for n in range(4)]
    mix += [f"/nodes/pve1/qemu/{100 + n}/status/current" for n in range(4)]
    return [mix[n % len(mix)] for n in range(REQUESTS)]


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# ---------------------------------------------------------------------- the server


def region(guests: int) -> Any:
    """Return a region with so many guests, each with a typical configuration and a disk."""
    from moxwell.lab.proxmox.state import SimGuest, SimVolume
    from moxwell.lab.proxmox.world import read_world

    text = f"""
regions:
  - name: r1
    nodes: [{{name: pve1, cpus: 64, memory: 512G}}]
    storages: [{{storage: local, type: dir, path: /var/lib/vz, content: [images], capacity: 900T}}]
    access: {{tokens: [{{token: {TOKEN_ID!r}, secret: {SECRET}, privsep: false}}]}}
"""
    made = read_world(text, "bench", 1.7e9)["r1"]
    volumes = made.storages["local"].volumes_on("pve1")
    for vmid in range(100, 100 + guests):
        name = f"{vmid}/vm-{vmid}-disk-0.qcow2"
        volumes[name] = SimVolume(name, "qcow2", "images", 32 << 30, vmid=vmid)
        conf: dict[str, Any] = {
            "name": f"guest-{vmid}", "memory": "2048", "cores": 2, "sockets": 1, "agent": "1",
            "boot": "order=scsi0", "scsihw": "virtio-scsi-single", "tags": f"moxwell;mox-{vmid:x}",
            "scsi0": f"local:{name},size=32G", "description": f"moxwell-owner={vmid:032x}",
            "net0": f"virtio=BC:24:11:{vmid >> 16:02X}:{vmid >> 8 & 255:02X}:{vmid & 255:02X},"
                    "bridge=vmbr0",
            "smbios1": f"uuid=00000000-0000-4000-8000-{vmid:012x}",
        }  # fmt: skip
        made.guests[vmid] = SimGuest(vmid, "qemu", "pve1", conf)
        made.changed.add(vmid)
    return made


def serve(folder: Path) -> None:
    """Serve a simulator on HTTPS until stdin closes; writes its URL to a file."""

    async def run() -> None:
        from moxwell.clock import SystemClock
        from moxwell.lab.proxmox import certs
        from moxwell.lab.proxmox.simulator import Simulator

        clock = SystemClock()
        made = certs.make(folder, clock.now())
        simulator = Simulator({"r1": region(GUESTS)}, clock, tls=made.context())
        await simulator.start()
        (folder / "url").write_text(simulator.url())
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await simulator.stop()

    asyncio.run(run())


# ---------------------------------------------------------------------- the clients


def ours(folder: Path) -> float:
    """Return the CPU seconds of our client for the mix."""
    from moxwell.clock import SystemClock
    from moxwell.pve.caller import ReadCaller
    from moxwell.pve.config import RegionConfig, TokenAuth
    from moxwell.pve.endpoints.cluster import ClusterResource
    from moxwell.pve.endpoints.guest import GuestRow, GuestStatus
    from moxwell.pve.transport import PveHttpTransport
    from moxwell.pve.values import SecretValue

    config = RegionConfig(
        region="r1",
        urls=((folder / "url").read_text(),),
        auth=TokenAuth(TOKEN_ID, SecretValue(SECRET)),
        ca_pem=(folder / "ca.pem").read_text(),
        concurrency=AT_ONCE,
    )
    kinds: dict[str, Any] = {
        "qemu": tuple[GuestRow, ...], "resources": tuple[ClusterResource, ...],
        "config": dict[str, Any], "current": GuestStatus,
    }  # fmt: skip

    async def run() -> float:
        transport = PveHttpTransport(config, SystemClock())
        caller = ReadCaller(transport)
        queue = iter(paths())

        async def work() -> None:
            for path in queue:
                await caller.read(kinds[path.rpartition("/")[2]], path)

        await caller.read(dict[str, Any], "/version")
        start = cpu_seconds()
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work())
        used = cpu_seconds() - start
        await transport.close()
        return used

    return asyncio.run(run())


def theirs(folder: Path) -> float:
    """Return the CPU seconds of proxmoxer in threads for the mix."""
    from proxmoxer import ProxmoxAPI

    host, _, port = (folder / "url").read_text().removeprefix("https://").partition(":")
    user, _, name = TOKEN_ID.partition("!")
    api = ProxmoxAPI(
        host, port=int(port), user=user, token_name=name, token_value=SECRET,
        verify_ssl=str(folder / "ca.pem"), service="PVE",
    )  # fmt: skip
    api("/version").get()
    start = cpu_seconds()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda path: api(path).get(), paths()))
    return cpu_seconds() - start


# ---------------------------------------------------------------------- idle, memory, growth


def idle(guests: int) -> float:
    """Return the requests per minute of an idle region with so many guests, on virtual time."""
    from moxwell.lab.proxmox.engine import Engine
    from moxwell.pve.config import RegionConfig, TokenAuth
    from moxwell.pve.regions import Region
    from moxwell.pve.values import SecretValue
    from moxwell.testing.loop import LoopClock, run_virtual
    from moxwell.testing.pve import SimTransport

    minutes = 5

    async def run() -> float:
        clock = LoopClock()
        engine = Engine({"r1": region(guests)}, clock)
        transport = SimTransport(engine, "r1", token=f"{TOKEN_ID}={SECRET}")
        auth = TokenAuth(TOKEN_ID, SecretValue(SECRET))
        watched = Region(
            RegionConfig(region="r1", urls=("https://x",), auth=auth), transport, clock
        )
        runner = asyncio.create_task(watched.run())
        await watched.inventory.wait_synced()
        assert len(watched.inventory.guests) == guests
        transport.sent.clear()
        await asyncio.sleep(60 * minutes)
        runner.cancel()
        await asyncio.wait([runner])
        await engine.close()
        return len(transport.sent) / minutes

    return run_virtual(run())


async def timed(engine: Any, request: Any) -> float:
    start = cpu_seconds()
    assert (await engine.handle("r1", request)).status == 200
    return cpu_seconds() - start


def listing(guests: int) -> tuple[float, float]:
    """Return (CPU seconds of one /cluster/resources, resident KiB) of a simulator."""
    from moxwell.lab.proxmox.engine import Engine
    from moxwell.lab.proxmox.message import SimRequest
    from moxwell.testing.loop import LoopClock, run_virtual

    async def run() -> tuple[float, float]:
        engine = Engine({"r1": region(guests)}, LoopClock())
        headers = {"authorization": f"PVEAPIToken={TOKEN_ID}={SECRET}"}
        request = SimRequest("GET", ("cluster", "resources"), {}, headers)
        await engine.handle("r1", request)
        gc.disable()  # its timing depends on the rest of the process
        used = min([await timed(engine, request) for _ in range(12)])
        await engine.close()
        return used, float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    return run_virtual(run())


# ---------------------------------------------------------------------- main


def apart(what: str, *arguments: str) -> Any:
    """Measure in a separate process."""
    command = [sys.executable, __file__, what, *arguments]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def against_proxmoxer() -> float:
    with tempfile.TemporaryDirectory() as name:
        server = subprocess.Popen(
            [sys.executable, __file__, "serve", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdout.readline()
        try:
            pairs = [(apart("ours", name), apart("theirs", name)) for _ in range(ROUNDS)]
        finally:
            server.stdin.close()
            server.wait()
    return float(sum(their for _, their in pairs) / sum(our for our, _ in pairs))


def main() -> int:
    ratio = against_proxmoxer()
    minutes = [apart("idle", str(size)) for size in SIZES]
    small, large = apart("listing", "1000"), apart("listing", "10000")
    growth = large[0] / small[0]
    per_guest = (large[1] - small[1]) / 9_000
    print(f"requests per CPU second, ours over proxmoxer in threads: {ratio:.1f} (at least 4)")
    rates = ", ".join(f"{rate:g}" for rate in minutes)
    print(f"requests per minute when idle at 10, 1,000, 10,000 guests: {rates} (the same)")
    print(f"/cluster/resources at 10,000 over 1,000 guests, CPU: {growth:.1f} (linear: 10)")
    print(f"simulator memory per guest: {per_guest:.1f} KiB")
    return 0 if ratio >= LEAST_RATIO and len(set(minutes)) == 1 and growth <= MOST_GROWTH else 1


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", folder]:
            serve(Path(folder))
        case ["ours", folder]:
            print(ours(Path(folder)))
        case ["theirs", folder]:
            print(theirs(Path(folder)))
        case ["idle", size]:
            print(idle(int(size)))
        case ["listing", size]:
            print(json.dumps(listing(int(size))))
        case _:
            sys.exit(main())
