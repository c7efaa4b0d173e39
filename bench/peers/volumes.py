"""
Volumes: proxmox-csi-plugin and Moxwell create, attach, expand, detach and delete volumes.

The calls are those of the CSI sidecars, over the drivers' sockets. All volumes are attached at the
same time to a few nodes, as after the restart of a node. Volumes that are attached on the first
host are expanded: proxmox-csi-plugin searches a volume of a shared storage on no other host.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

from envtest.control_plane import ControlPlane
from envtest.process import Failed, Process, wait_ready
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.testing.csi import world_text
from moxwell.testing.two_regions_world import TOKEN_SECRET
from peers.figures import Run
from peers.programs import peer_region_file, region_file, run_moxwell
from peers.proxmox import Meter, RecordedProxmox

PROGRAMS = ("proxmox-csi-controller",)
GIB = 1 << 30
GUESTS = 4
STORAGE, TOKEN = "ceph", "csi@pve!test"
REGION = "topology.kubernetes.io/region"
TRIES = 60  # a sidecar repeats a failed call
MODE = csi.VolumeCapability.AccessMode
MOUNT = csi.VolumeCapability(
    mount=csi.VolumeCapability.MountVolume(fs_type="ext4"),
    access_mode=MODE(mode=MODE.SINGLE_NODE_WRITER),
)


def run_volumes(folder: Path, count: int) -> Iterator[Run]:
    """Run both programs one after the other."""
    for program in ("proxmox-csi-controller", "moxwell"):
        yield _run(folder / program, program, count)


def _run(folder: Path, program: str, count: int) -> Run:
    run = Run("volumes", program)
    with (
        RecordedProxmox(folder / "sim", _world(), TOKEN) as proxmox,
        ControlPlane(folder / "kube") as plane,
    ):
        plane.start()
        _register_nodes(plane)
        socket = folder / "csi.sock"
        process = _start(program, plane, proxmox, socket)
        meter = Meter(run, proxmox, process)
        asyncio.run(_calls(Driver(socket), meter, count, program))
        meter.finish()
    return run


def _world() -> str:
    """One region whose token may do everything."""
    text = world_text(guests=GUESTS)
    grant = "    access:\n      acl: [{path: /, user: csi@pve, role: Administrator}]\n"
    one = text[: text.index("  - name: r2")].replace("    access:\n", grant)
    return one.replace("11111111-2222-4333-8444-555555555555", TOKEN_SECRET)


def _register_nodes(plane: ControlPlane) -> None:
    for n in range(GUESTS):
        labels = {REGION: "r1", "topology.kubernetes.io/zone": f"r1-h{n % 2}"}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"node-{n}", "labels": labels},
            "spec": {"providerID": f"proxmox://r1/{101 + n}"},
        }
        status, answer = plane.request("POST", "/api/v1/nodes", body)
        if status != 201:
            raise Failed(f"node-{n} cannot be created: {answer}")


def _start(program: str, plane: ControlPlane, proxmox: RecordedProxmox, socket: Path) -> Process:
    address = f"--csi-address=unix://{socket}"
    kubernetes = f"--kubeconfig={plane.kubeconfig}"
    if program == "moxwell":
        config = region_file(proxmox, socket.with_name("config.yaml"))
        process = run_moxwell(plane, "csi", "controller", f"--config={config}", address, kubernetes)
    else:
        config = peer_region_file(proxmox, socket.with_name("peer.yaml"))
        process = plane.start_program(program, f"--cloud-config={config}", address, kubernetes)
    wait_ready(process, socket.exists)
    return process


class Driver:
    """Calls a CSI driver over its socket; a call that fails is repeated, as sidecars do."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.repeated = 0

    async def call(self, method: str, request: Any, answer: Any) -> Any:
        async with grpc.aio.insecure_channel(f"unix://{self._socket}") as channel:
            ask = channel.unary_unary(
                f"/csi.v1.Controller/{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer.FromString,
            )
            for left in reversed(range(TRIES)):
                try:
                    return await ask(request, timeout=300)
                except grpc.aio.AioRpcError as error:
                    if not left:
                        raise Failed(f"{method}: {error.details()}") from error
                    self.repeated += 1
                await asyncio.sleep(1)
        raise Failed(method)


async def _calls(driver: Driver, meter: Meter, count: int, program: str) -> None:
    node = _node_ids(program)
    with meter.phase(f"create {count} volumes", count):
        volumes = await _each(count, lambda n: _create(driver, n))
    with meter.phase(f"attach {count} at once", count):
        await _each(count, lambda n: _publish(driver, volumes[n], node(n)))
    with meter.phase(f"expand {GUESTS} attached", GUESTS):
        await _each(GUESTS, lambda n: _expand(driver, volumes[2 * n]))
    with meter.phase(f"detach {count} at once", count):
        await _each(count, lambda n: _unpublish(driver, volumes[n], node(n)))
    with meter.phase(f"delete {count} volumes", count):
        await _each(count, lambda n: _delete(driver, volumes[n]))
    meter.run.repeated_calls = driver.repeated


def _node_ids(program: str) -> Callable[[int], str]:
    """The node IDs as the node plugin of each program reports them."""
    if program == "moxwell":
        return lambda n: f"proxmox://r1/{101 + n % GUESTS}"
    return lambda n: f"node-{n % GUESTS}"


async def _each(count: int, call: Callable[[int], Awaitable[Any]]) -> list[Any]:
    return list(await asyncio.gather(*(call(n) for n in range(count))))


async def _create(driver: Driver, n: int) -> csi.Volume:
    topology = csi.Topology(segments={REGION: "r1"})
    request = csi.CreateVolumeRequest(
        name=f"pvc-{n:04d}",
        capacity_range=csi.CapacityRange(required_bytes=GIB),
        volume_capabilities=[MOUNT],
        parameters={"storage": STORAGE},
        accessibility_requirements=csi.TopologyRequirement(
            requisite=[topology], preferred=[topology]
        ),
    )
    made: csi.Volume = (await driver.call("CreateVolume", request, csi.CreateVolumeResponse)).volume
    return made


async def _publish(driver: Driver, volume: csi.Volume, node: str) -> None:
    request = csi.ControllerPublishVolumeRequest(
        volume_id=volume.volume_id,
        node_id=node,
        volume_capability=MOUNT,
        volume_context=volume.volume_context,
    )
    await driver.call("ControllerPublishVolume", request, csi.ControllerPublishVolumeResponse)


async def _expand(driver: Driver, volume: csi.Volume) -> None:
    request = csi.ControllerExpandVolumeRequest(
        volume_id=volume.volume_id,
        capacity_range=csi.CapacityRange(required_bytes=2 * GIB),
        volume_capability=MOUNT,
    )
    await driver.call("ControllerExpandVolume", request, csi.ControllerExpandVolumeResponse)


async def _unpublish(driver: Driver, volume: csi.Volume, node: str) -> None:
    request = csi.ControllerUnpublishVolumeRequest(volume_id=volume.volume_id, node_id=node)
    await driver.call("ControllerUnpublishVolume", request, csi.ControllerUnpublishVolumeResponse)


async def _delete(driver: Driver, volume: csi.Volume) -> None:
    request = csi.DeleteVolumeRequest(volume_id=volume.volume_id)
    await driver.call("DeleteVolume", request, csi.DeleteVolumeResponse)
