"""Volumes under genuine provisioner, resizer and snapshotter, in two regions of the simulator.

The external-attacher cannot be had as a Go module; its part (VolumeAttachment to ControllerPublish,
finalizer, status) is played here by a small loop, in its order.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from moxwell.clock import SystemClock
from moxwell.csi.metrics import CsiMetrics
from moxwell.csi.plugin import Identity
from moxwell.csi.server import Calls, serving
from moxwell.csi.wire import csi_pb2 as csi
from moxwell.testing.csi import CsiStage, node_id
from moxwell.testing.csi_calls import MOUNT
from rig import locate
from rig.control_plane import ControlPlane
from rig.plugin import require

pytestmark = [pytest.mark.genuine, pytest.mark.slow]

DRIVER = "csi.moxwell.dev"
STORAGE, SNAPSHOTS = "/apis/storage.k8s.io/v1", "/apis/snapshot.storage.k8s.io/v1"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
PATIENCE_SECONDS = 60
CLASSES = (("r1", "ceph"), ("r1", "local-lvm"), ("r2", "nfs"), ("r2", "local-zfs"))


class World:
    """A cluster whose only storage is ours."""

    def __init__(self, plane: ControlPlane, stage: CsiStage) -> None:
        self.plane, self.stage = plane, stage

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = await asyncio.to_thread(self.plane.request, method, path, body)
        assert status < 300 or (method == "GET" and status == 404), (path, status, answer)
        return answer if status < 300 else None

    async def apply(self, *objects: dict[str, Any]) -> None:
        import json

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
        await self.apply(_driver_object(), _snapshot_class())
        for region in ("r1", "r2"):
            node, registered = _node(region)
            await self.apply(node)
            await self.apply(registered)
        await self.apply(*(_class(region, storage) for region, storage in CLASSES))

    def start_sidecars(self, address: str) -> None:
        start, config = self.plane.start_program, f"--kubeconfig={self.plane.kubeconfig}"
        at = f"--csi-address={address}"
        start(
            "csi-provisioner",
            at,
            config,
            "--feature-gates=Topology=true",
            "--extra-create-metadata",
        )
        start("csi-resizer", at, config, "--handle-volume-inuse-error=false")
        start("csi-snapshotter", at, config)
        start("snapshot-controller", config)

    async def attach_forever(self) -> None:
        """The external-attacher's part."""
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
            await self.stage.controller.controller_unpublish_volume(
                csi.ControllerUnpublishVolumeRequest(volume_id=handle, node_id=node)
            )
            row["metadata"]["finalizers"] = []
            await self.ask("PUT", path, row)
        elif not row.get("status", {}).get("attached"):
            row["metadata"]["finalizers"] = [f"external-attacher/{DRIVER}"]
            row = await self.ask("PUT", path, row)
            answer = await self.stage.controller.controller_publish_volume(
                csi.ControllerPublishVolumeRequest(
                    volume_id=handle,
                    node_id=node,
                    volume_capability=MOUNT,
                    volume_context=pv["spec"]["csi"].get("volumeAttributes", {}),
                )
            )
            metadata = dict(answer.publish_context)
            row["status"] = {"attached": True, "attachmentMetadata": metadata}
            await self.ask("PUT", f"{path}/status", row)


def _driver_object() -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER},
        "spec": {"attachRequired": True, "podInfoOnMount": True},
    }


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
    """One volume's life: made, attached, grown, snapshotted, restored, detached, cloned, gone."""
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
    kept = f"{SNAPSHOTS}/namespaces/default/volumesnapshots/{name}"
    await world.until(kept, lambda s: s.get("status", {}).get("readyToUse"))
    taken = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name}
    await world.apply(_claim(f"{name}-restored", klass, mode, "2Gi", taken))
    await world.until(f"{CLAIMS}/{name}-restored", _bound)
    await world.ask("DELETE", path)
    await world.until(path, lambda a: a is None)
    original = {"kind": "PersistentVolumeClaim", "name": name}
    await world.apply(_claim(f"{name}-clone", klass, mode, "2Gi", original))
    await world.until(f"{CLAIMS}/{name}-clone", _bound)
    assert len(world.stage.volumes(storage, region)) >= 4
    await world.ask("DELETE", kept)
    await world.until(kept, lambda s: s is None)
    for claim_name in (name, f"{name}-restored", f"{name}-clone"):
        await world.ask("DELETE", f"{CLAIMS}/{claim_name}")


async def story(plane: ControlPlane, folder: Path) -> None:
    clock = SystemClock()
    stage = CsiStage(folder, clock=clock)
    calls = Calls(clock, CsiMetrics(CollectorRegistry()))
    async with stage.running():
        world = World(plane, stage)
        await world.prepare()
        handlers = (
            calls.handlers("Identity", Identity(DRIVER, lambda: True)),
            calls.handlers("Controller", stage.controller),
        )
        async with serving(f"unix://{folder}/csi.sock", handlers):
            world.start_sidecars(f"{folder}/csi.sock")
            attacher = asyncio.create_task(world.attach_forever())
            lives = [
                live(world, region, storage, mode)
                for region, storage in CLASSES
                for mode in ("Filesystem", "Block")
            ]
            await asyncio.gather(*lives)
            await world.until("/api/v1/persistentvolumes", lambda page: not page["items"])
            left = {(r, s): stage.volumes(s, r) for r, s in CLASSES if stage.volumes(s, r)}
            assert left == {}
            attacher.cancel()
            await asyncio.wait([attacher])
    await stage.close()


def test_volumes_live_under_genuine_sidecars(own_genuine: ControlPlane, tmp_path: Path) -> None:
    require("csi-provisioner", "csi-resizer", "csi-snapshotter", "snapshot-controller")
    asyncio.run(story(own_genuine, tmp_path))
