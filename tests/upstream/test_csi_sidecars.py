"""
Volumes of a tenant with the upstream sidecars and the driver outside, in two regions.

The driver is the installed command with the kubeconfig of an upstream control plane; the simulator
serves HTTPS. external-attacher is not available as a Go module: a ``csi-attacher`` on PATH is used,
otherwise a small loop replaces it (VolumeAttachment to ControllerPublishVolume, finalizer, status).
"""

import asyncio
import base64
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from envtest import locate
from envtest.control_plane import ControlPlane
from envtest.plugin import require
from moxwell.clock import SystemClock
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.lab.proxmox import certs
from moxwell.lab.proxmox import simulator as serve
from moxwell.lab.proxmox.world import read_world
from moxwell.testing.csi import node_id, world_text
from moxwell.testing.csi_calls import MOUNT
from support.grpc_sockets import PATIENCE_SECONDS, until_answers

pytestmark = [pytest.mark.genuine, pytest.mark.slow, pytest.mark.xdist_group("sidecars")]
RELEASE = Path(__file__).parents[2] / "release" / "csi.yaml"
ACCOUNT = "system:serviceaccount:kube-system:moxwell-csi-controller"
COMMAND = Path(sys.executable).with_name("moxwell")
PASSWORD = "secret"

DRIVER = "csi.moxwell.dev"
STORAGE, SNAPSHOTS = "/apis/storage.k8s.io/v1", "/apis/snapshot.storage.k8s.io/v1"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
CLASSES = (("r1", "ceph"), ("r1", "local-lvm"), ("r2", "nfs"), ("r2", "local-zfs"))


class World:
    """A cluster whose only StorageClass uses the driver."""

    def __init__(self, plane: ControlPlane, simulator: serve.Simulator, address: str) -> None:
        self.plane, self.simulator, self.address = plane, simulator, address
        self._before = {(r, s): self._all(s, r) for r, s in CLASSES}

    def _all(self, storage: str, region: str) -> set[str]:
        stored = self.simulator.engine.runtimes[region].region.storages[storage].volumes.values()
        return {v.name for volumes in stored for v in volumes.values()}

    def volumes(self, storage: str, region: str) -> set[str]:
        """The disks on a storage that were created since the start."""
        return self._all(storage, region) - self._before[region, storage]

    async def call(self, name: str, request: Any, answer: Any) -> Any:
        """One call to the driver's controller over its socket."""
        async with grpc.aio.insecure_channel(self.address) as channel:
            act = channel.unary_unary(
                f"/csi.v1.Controller/{name}",
                request_serializer=lambda r: r.SerializeToString(),
                response_deserializer=answer.FromString,
            )
            return await act(request)

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = await asyncio.to_thread(self.plane.request, method, path, body)
        assert status < 300 or (method == "GET" and status == 404), (path, status, answer)
        return answer if status < 300 else None

    async def apply(self, *objects: dict[str, Any]) -> None:
        for one in objects:
            await asyncio.to_thread(
                self.plane.kubectl, "apply", "--server-side", "-f", "-", stdin=json.dumps(one)
            )

    async def until(self, path: str, good: Callable[[Any], object]) -> Any:
        seen: Any = None
        for _ in range(PATIENCE_SECONDS * 4):
            seen = await self.ask("GET", path)
            if good(seen):
                return seen
            await asyncio.sleep(0.25)
        raise AssertionError(f"{path} did not become good: {seen}")

    async def prepare(self) -> None:
        folder = locate.folder("snapshot-controller") / "src/config/crd"
        for file in sorted(folder.glob("snapshot.storage*.yaml")):
            await asyncio.to_thread(self.plane.kubectl, "apply", "--server-side", "-f", str(file))
        await asyncio.to_thread(self.plane.kubectl, "apply", "--server-side", "-f", str(RELEASE))
        await self.apply(_snapshot_class())
        for region in ("r1", "r2"):
            node, registered = _node(region)
            await self.apply(node)
            await self.apply(registered)
        await self.apply(*(_class(region, storage) for region, storage in CLASSES))

    def start_sidecars(self, address: str, config: Path) -> None:
        """The sidecars with exactly the RBAC rules of the release."""
        both = (f"--csi-address={address}", f"--kubeconfig={config}")
        room = (
            "--enable-capacity",
            "--capacity-ownerref-level=-1",
            "--capacity-for-immediate-binding",
        )
        topology = ("--feature-gates=Topology=true", "--extra-create-metadata")
        self._start("csi-provisioner", *both, *topology, *room)
        self._start("csi-resizer", *both, "--handle-volume-inuse-error=false")
        self._start("csi-snapshotter", *both)
        self._start("snapshot-controller", f"--kubeconfig={self.plane.kubeconfig}")
        if attacher := shutil.which("csi-attacher"):
            self.plane.run("csi-attacher", Path(attacher), *both)

    def _start(self, name: str, *args: str) -> None:
        env = {"NAMESPACE": "kube-system", "POD_NAME": "driver"}
        self.plane.run(name, locate.program(name), *args, env=env)

    async def room_is_told(self) -> None:
        """The CSIStorageCapacity objects that the provisioner publishes."""
        path = f"{STORAGE}/namespaces/kube-system/csistoragecapacities"

        def is_told(page: Any) -> bool:
            published = {
                (i["storageClassName"], _zone(i)): i.get("capacity") for i in page["items"]
            }
            here = (("r1-ceph", "r1-h0"), ("r2-nfs", "r2-h0"))
            return all(published.get(location) not in (None, "0") for location in here)

        await self.until(path, is_told)

    async def attach_forever(self) -> None:
        """Replaces external-attacher."""
        while True:
            rows = (await self.ask("GET", f"{STORAGE}/volumeattachments"))["items"]
            for row in rows:
                await self._tend(row)
            await asyncio.sleep(0.25)

    async def _tend(self, row: dict[str, Any]) -> None:
        path = f"{STORAGE}/volumeattachments/{row['metadata']['name']}"
        pv = await self.ask(
            "GET", f"/api/v1/persistentvolumes/{row['spec']['source']['persistentVolumeName']}"
        )
        handle = pv["spec"]["csi"]["volumeHandle"]
        node = node_id(101, row["spec"]["nodeName"])
        if row["metadata"].get("deletionTimestamp"):
            off = csi.ControllerUnpublishVolumeRequest(volume_id=handle, node_id=node)
            await self.call("ControllerUnpublishVolume", off, csi.ControllerUnpublishVolumeResponse)
            row["metadata"]["finalizers"] = []
            await self.ask("PUT", path, row)
        elif not row.get("status", {}).get("attached"):
            row["metadata"]["finalizers"] = [f"external-attacher/{DRIVER}"]
            row = await self.ask("PUT", path, row)
            on = csi.ControllerPublishVolumeRequest(
                volume_id=handle,
                node_id=node,
                volume_capability=MOUNT,
                volume_context=pv["spec"]["csi"].get("volumeAttributes", {}),
            )
            answer = await self.call(
                "ControllerPublishVolume", on, csi.ControllerPublishVolumeResponse
            )
            metadata = dict(answer.publish_context)
            row["status"] = {"attached": True, "attachmentMetadata": metadata}
            await self.ask("PUT", f"{path}/status", row)


def _zone(capacity: dict[str, Any]) -> str:
    labels: dict[str, str] = capacity["nodeTopology"]["matchLabels"]
    return labels["topology.kubernetes.io/zone"]


def _snapshot_class() -> dict[str, Any]:
    return {
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshotClass",
        "metadata": {"name": "copies"},
        "driver": DRIVER,
        "deletionPolicy": "Delete",
        "parameters": {"whileAttached": "copy"},
    }


def _node(region: str) -> tuple[dict[str, Any], dict[str, Any]]:
    labels = {
        "topology.kubernetes.io/region": region,
        "topology.kubernetes.io/zone": f"{region}-h0",
    }
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": region, "labels": labels},
        "spec": {"providerID": node_id(101, region)},
    }
    row = {"name": DRIVER, "nodeID": node_id(101, region), "topologyKeys": sorted(labels)}
    registered = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": region},
        "spec": {"drivers": [row]},
    }
    return node, registered


def _class(region: str, storage: str) -> dict[str, Any]:
    terms = [
        {"key": "topology.kubernetes.io/region", "values": [region]},
        {"key": "topology.kubernetes.io/zone", "values": [f"{region}-h0"]},
    ]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": f"{region}-{storage}"},
        "provisioner": DRIVER,
        "parameters": {"storage": storage},
        "allowVolumeExpansion": True,
        "allowedTopologies": [{"matchLabelExpressions": terms}],
    }


def _claim(
    name: str, klass: str, mode: str, size: str = "1Gi", source: Any = None
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": klass,
        "volumeMode": mode,
        "resources": {"requests": {"storage": size}},
    }
    if source:
        spec["dataSource"] = source
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def _bound(claim: Any) -> bool:
    return bool(claim and claim.get("status", {}).get("phase") == "Bound")


async def live(world: World, region: str, storage: str, mode: str) -> None:
    """A volume is created, attached, expanded, snapshotted, restored, cloned and deleted."""
    klass, name = f"{region}-{storage}", f"{region}-{storage}-{mode.lower()}"
    await world.apply(_claim(name, klass, mode))
    claim = await world.until(f"{CLAIMS}/{name}", _bound)
    pv = claim["spec"]["volumeName"]
    attachment = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": name},
        "spec": {
            "attacher": DRIVER,
            "nodeName": region,
            "source": {"persistentVolumeName": pv},
        },
    }
    await world.apply(attachment)
    path = f"{STORAGE}/volumeattachments/{name}"
    await world.until(path, lambda a: a.get("status", {}).get("attached"))
    await world.apply(_claim(name, klass, mode, "2Gi"))
    await world.until(
        f"/api/v1/persistentvolumes/{pv}", lambda v: v["spec"]["capacity"]["storage"] == "2Gi"
    )
    snapshot = {
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshot",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "volumeSnapshotClassName": "copies",
            "source": {"persistentVolumeClaimName": name},
        },
    }
    await world.apply(snapshot)
    objects = f"{SNAPSHOTS}/namespaces/default/volumesnapshots/{name}"
    await world.until(objects, lambda s: s.get("status", {}).get("readyToUse"))
    taken = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name}
    await world.apply(_claim(f"{name}-restored", klass, mode, "2Gi", taken))
    await world.until(f"{CLAIMS}/{name}-restored", _bound)
    await world.ask("DELETE", path)
    await world.until(path, lambda a: a is None)
    original = {"kind": "PersistentVolumeClaim", "name": name}
    await world.apply(_claim(f"{name}-clone", klass, mode, "2Gi", original))
    await world.until(f"{CLAIMS}/{name}-clone", _bound)
    assert len(world.volumes(storage, region)) >= 3
    await world.ask("DELETE", objects)
    await world.until(objects, lambda s: s is None)
    for claim_name in (name, f"{name}-restored", f"{name}-clone"):
        await world.ask("DELETE", f"{CLAIMS}/{claim_name}")


async def open_estate(folder: Path) -> tuple[serve.Simulator, Path]:
    """The simulator with two regions and the driver's configuration for it."""
    clock = SystemClock()
    worlds = read_world(world_text(), "csi.yaml", clock.now().timestamp())
    made = certs.make(folder / "tls", clock.now())
    simulator = serve.Simulator(worlds, clock, tls=made.context())
    await simulator.start()
    rows = [
        {
            "region": name,
            "url": next(url for (region, _), url in simulator.urls.items() if region == name),
            "username": "root@pam",
            "password": PASSWORD,
            "ca_file": str(made.ca),
        }
        for name in ("r1", "r2")
    ]
    config = folder / "regions.yaml"
    config.write_text(yaml.safe_dump({"clusters": rows}))
    return simulator, config


async def no_secret_inside(world: World) -> None:
    """Assert that the tenant has no Proxmox credential."""
    for kind in ("secrets", "configmaps"):
        found = json.dumps(await world.ask("GET", f"/api/v1/{kind}"))
        assert "root@pam" not in found
        assert base64.b64encode(b"root@pam").decode()[:8] not in found


def start(config: Path, tenant: Path, path: Path, log: Path) -> "subprocess.Popen[bytes]":
    """The driver's controller, outside the tenant cluster."""
    where = (
        "--config",
        str(config),
        "--kubeconfig",
        str(tenant),
        "--csi-address",
        f"unix://{path}",
    )
    with log.open("wb") as out:
        return subprocess.Popen([str(COMMAND), "csi", "controller", *where], stdout=out, stderr=out)


async def scenario(plane: ControlPlane, folder: Path) -> None:
    simulator, config = await open_estate(folder)
    path, log = folder / "csi.sock", folder / "driver.log"
    account = plane.kubeconfig_for(ACCOUNT)
    driver = start(config, account, path, log)
    try:
        world = World(plane, simulator, f"unix://{path}")
        await world.prepare()
        await until_answers(path, driver, log)
        world.start_sidecars(str(path), account)
        await process_runs(world)
        await world.room_is_told()
        await no_secret_inside(world)
        driver.terminate()
        assert await asyncio.to_thread(driver.wait, PATIENCE_SECONDS) == 0
    finally:
        if driver.poll() is None:
            driver.kill()
            driver.wait()
        await simulator.stop()


async def process_runs(world: World) -> None:
    attacher = None
    if shutil.which("csi-attacher") is None:
        attacher = asyncio.create_task(world.attach_forever())
    each = [
        live(world, region, storage, mode)
        for region, storage in CLASSES
        for mode in ("Filesystem", "Block")
    ]
    await asyncio.gather(*each)
    await world.until("/api/v1/persistentvolumes", lambda page: not page["items"])
    copies = f"{SNAPSHOTS}/volumesnapshotcontents"  # deleted after the snapshots
    await world.until(copies, lambda page: not page["items"])
    left = {(r, s): world.volumes(s, r) for r, s in CLASSES if world.volumes(s, r)}
    assert left == {}
    if attacher is not None:
        attacher.cancel()
        await asyncio.wait([attacher])


def test_volumes_work_with_upstream_sidecars(own_genuine: ControlPlane, tmp_path: Path) -> None:
    require("csi-provisioner", "csi-resizer", "csi-snapshotter", "snapshot-controller")
    asyncio.run(scenario(own_genuine, tmp_path))
