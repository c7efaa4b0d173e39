"""
Volumes of a tenant on virtual time: embedded controllers, CSI driver, simulator and kubelets.

Everything of the lab's storage except sockets. Each node is a simulated guest; its disks are those
of the running guest in the simulator.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moxwell.api.kinds import Resource
from moxwell.app.tenant_storage import TenantStorage
from moxwell.csi.controller import ControllerService
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.controllermanager.resources import (
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    VOLUME_SNAPSHOT_CLASSES,
    VOLUME_SNAPSHOT_CONTENTS,
    VOLUME_SNAPSHOTS,
)
from moxwell.embedded.controllermanager.storage.labels import SELECTED_NODE, Json
from moxwell.embedded.controllermanager.storage.persistentvolume.plan import NO_PROVISIONER
from moxwell.embedded.controllermanager.storage.provisioner.request import affinity
from moxwell.embedded.scheduler.controller import scheduler
from moxwell.kube.client import Kube
from moxwell.lab.guests.kubelet import NodeFacts, SimulatedKubelet
from moxwell.lab.proxmox.qemu.start import live_config
from moxwell.runtime.manager import assemble
from moxwell.runtime.settings import ManagerSettings
from moxwell.testing import csi_calls as calls
from moxwell.testing.csi import CsiEnvironment, node_id
from moxwell.testing.loop import run_virtual

EVENTS = Resource("", "v1", "events", "Event")
REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
PATIENCE_SECONDS = 180


class Tenant:
    """A tenant with two nodes, on guests 101 and 102 of region r1."""

    def __init__(self, stage: CsiEnvironment, kube: Kube, controller: ControllerService) -> None:
        self.stage, self.kube, self.controller = stage, kube, controller

    async def create(self, body: Json, at: Any) -> Json:
        return await self.kube.create(body, at)

    async def claim(
        self,
        name: str,
        storage_class: str = "proxmox-local-lvm",
        size: str = "1Gi",
        source: Any = None,
    ) -> None:
        spec: Json = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": size}},
        }
        if source:
            spec["dataSource"] = source
        await self.create(
            _head("v1", "PersistentVolumeClaim", name) | {"spec": spec}, PERSISTENT_VOLUME_CLAIMS
        )

    async def pod(self, name: str, claim: str, **more: Any) -> None:
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
        spec = {"containers": [{"name": "c", "image": "i"}], "volumes": [volume], **more}
        await self.create(_head("v1", "Pod", name) | {"spec": spec}, PODS)

    async def storage_class(
        self,
        name: str,
        mode: str = "Immediate",
        *,
        provisioner: str = "csi.moxwell.dev",
        **parameters: str,
    ) -> None:
        body = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": mode,
            "parameters": parameters,
        }
        await self.create(body, STORAGE_CLASSES)

    async def until(self, what: str, good: Callable[[], Any]) -> Any:
        for _ in range(PATIENCE_SECONDS * 4):
            if found := await good():
                return found
            await asyncio.sleep(0.25)
        events = [f"{e['reason']}: {e['message']}" for e in (await self.kube.list(EVENTS)).items]
        raise AssertionError(f"{what} did not happen: {events}")

    async def runs(self, name: str) -> Json:
        async def running() -> Json | None:
            pod = await self.kube.find(PODS, name, "default")
            return pod if pod and pod.get("status", {}).get("phase") == "Running" else None

        found: Json = await self.until(f"pod {name} runs", running)
        return found

    async def has_event(self, kind: str, name: str, *words: str) -> None:
        async def found() -> bool:
            rows = (await self.kube.list(EVENTS, "default")).items
            own = [
                e
                for e in rows
                if (e["involvedObject"]["kind"], e["involvedObject"]["name"]) == (kind, name)
            ]
            return any(all(w in f"{e['reason']}: {e['message']}" for w in words) for e in own)

        await self.until(f"{kind} {name} has an event {words}", found)

    async def gone(self, at: Any) -> None:
        async def none() -> bool:
            return not (await self.kube.list(at)).items

        await self.until(f"no {at.kind} is left", none)

    def held(self, vmid: int) -> list[str]:
        """The volumes in the live configuration of a guest."""
        conf = live_config(self.stage.world().guests[vmid])
        return [str(v) for k, v in conf.items() if k.startswith("scsi") and "pvc" in str(v)]


def _head(version: str, kind: str, name: str) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}}


@asynccontextmanager
async def tenant(folder: Path) -> AsyncIterator[Tenant]:
    stage = CsiEnvironment(folder)
    async with EmbeddedApiServer(clock=stage.clock) as store, stage.running(regions=("r1",)):
        runtime = assemble(store, stage.clock, ManagerSettings(elect=False, identity="test"))
        runtime.manager.add(scheduler(runtime.kube, runtime.manager.caches))
        storage = TenantStorage(stage.driver.regions, stage.clock)
        storage.add(runtime)
        kube = Kube(store)
        tasks = [asyncio.create_task(runtime.manager.run())]
        tasks += [asyncio.create_task(_node(stage, kube, vmid)) for vmid in (101, 102)]
        try:
            one = Tenant(stage, kube, ControllerService(storage.driver(runtime)))
            await one.until("nodes are ready", lambda: _ready(kube))
            yield one
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
    await stage.close()


async def _node(stage: CsiEnvironment, kube: Kube, vmid: int) -> None:
    """A node as the cloud controller left it, and its kubelet."""
    guest = stage.world().guests[vmid]
    given = f"{REGION}=r1,{ZONE}={guest.node}"
    facts = NodeFacts(
        name=f"n{vmid}", uuid=f"u{vmid}", version="v1.34.1", cpus=4, memory_mib=8192,
        addresses=(), args={"node-labels": given, "provider-id": node_id(vmid)},
    )  # fmt: skip
    await SimulatedKubelet(kube, facts, stage.clock, lambda: live_config(guest)).run()


async def _ready(kube: Kube) -> bool:
    nodes = (await kube.list(NODES)).items
    registered = (await kube.list(CSI_NODES)).items
    return len(nodes) == len(registered) == 2 and bool(
        (await kube.list(CSI_STORAGE_CAPACITIES)).items
    )


def test_a_volume_is_created_in_the_zone_of_its_pod_and_deleted_with_its_claim(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with tenant(tmp_path) as one:
            await one.claim("a")
            await one.has_event("PersistentVolumeClaim", "a", "WaitForFirstConsumer")
            await one.pod("a", "a")
            node = (await one.runs("a"))["spec"]["nodeName"]
            assert len(one.held(int(node[1:]))) == 1
            await one.kube.merge(
                PERSISTENT_VOLUME_CLAIMS,
                "a",
                {"spec": {"resources": {"requests": {"storage": "3Gi"}}}},
                "default",
            )
            await one.until("it has grown", lambda: _has(one, "a", "3Gi"))
            await one.kube.delete(PODS, "a", "default")
            await one.gone(VOLUME_ATTACHMENTS)
            assert one.held(101) == one.held(102) == []
            await one.kube.delete(PERSISTENT_VOLUME_CLAIMS, "a", "default")
            await one.gone(PERSISTENT_VOLUMES)
            assert one.stage.volumes("local-lvm") == []

    run_virtual(story())


async def _has(one: Tenant, name: str, size: str) -> bool:
    claim = await one.kube.get(PERSISTENT_VOLUME_CLAIMS, name, "default")
    return bool((claim["status"].get("capacity") or {}).get("storage") == size)


def test_a_pod_is_scheduled_to_the_node_of_its_local_disk(tmp_path: Path) -> None:
    async def story() -> None:
        async with tenant(tmp_path) as one:
            await one.claim("a")
            await one.pod("a", "a")
            node = (await one.runs("a"))["spec"]["nodeName"]
            await one.kube.merge(NODES, node, {"spec": {"unschedulable": True}})
            await one.kube.delete(PODS, "a", "default")
            await one.gone(PODS)
            await one.pod("again", "a")
            await one.has_event("Pod", "again", "volume node affinity conflict", "unschedulable")
            await one.kube.merge(NODES, node, {"spec": {"unschedulable": None}})
            assert (await one.runs("again"))["spec"]["nodeName"] == node

    run_virtual(story())


def test_a_shared_disk_follows_its_pod_and_is_never_on_two_guests(tmp_path: Path) -> None:
    async def story() -> None:
        async with tenant(tmp_path) as one:
            await one.claim("a", "proxmox-ceph")
            await one.pod("first", "a", nodeName="n101")
            chosen = {"metadata": {"annotations": {SELECTED_NODE: "n101"}}}
            await one.kube.merge(PERSISTENT_VOLUME_CLAIMS, "a", chosen, "default")
            await one.runs("first")
            await one.pod("second", "a", nodeName="n102")
            await one.has_event("Pod", "second", "Multi-Attach error")
            assert (len(one.held(101)), one.held(102)) == (1, [])
            await one.kube.delete(PODS, "first", "default")
            await one.runs("second")
            assert (one.held(101), len(one.held(102))) == ([], 1)

    run_virtual(story())


@pytest.mark.parametrize(
    ("parameters", "size", "words"),
    [
        pytest.param(
            {"storage": "ceph"}, "90Ti", ("InsufficientCapacity", "GiB free"), id="no capacity"
        ),
        pytest.param(
            {"storage": "tape"}, "1Gi", ("ProvisioningFailed", "'tape'"), id="no such storage"
        ),
        pytest.param(
            {"storage": "ceph", "region": "r9"}, "1Gi", ("ProvisioningFailed", "topology"),
            id="the wrong region",
        ),
        pytest.param(
            {"storage": "ceph", "sdd": "true"}, "1Gi", ("did you mean ssd?",), id="a mistake"
        ),
    ],
)  # fmt: skip
def test_events_of_a_claim_name_the_error(
    tmp_path: Path, parameters: dict[str, str], size: str, words: tuple[str, ...]
) -> None:
    async def story() -> None:
        async with tenant(tmp_path) as one:
            await one.storage_class("odd", **parameters)
            await one.claim("a", "odd", size)
            await one.has_event("PersistentVolumeClaim", "a", *words)

    run_virtual(story())


def test_a_missing_permission_is_named_on_the_claim_and_on_the_pod(tmp_path: Path) -> None:
    async def story() -> None:
        async with tenant(tmp_path) as one:
            roles = one.stage.world().access.roles
            whole = list(roles["Moxwell"])
            await one.claim("a")
            roles["Moxwell"] = [p for p in whole if p != "Datastore.AllocateSpace"]
            await one.pod("a", "a")
            await one.has_event("PersistentVolumeClaim", "a", "ProvisioningFailed", "AllocateSpace")
            roles["Moxwell"] = [p for p in whole if p != "VM.Config.Disk"]
            await one.has_event("Pod", "a", "FailedAttachVolume", "VM.Config.Disk")
            roles["Moxwell"] = whole
            await one.runs("a")

    run_virtual(story())


def test_a_claim_without_capacity_in_one_zone_is_provisioned_in_the_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with tenant(tmp_path) as one:
            await one.claim("huge", size="3Ti")
            await one.pod("huge", "huge")
            await one.has_event("Pod", "huge", "did not have enough free storage")
            await one.claim("fits", size="1Ti")
            await one.pod("fits", "fits")
            await one.runs("fits")

    run_virtual(story())


CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)


def _definition(at: Resource) -> Json:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": at.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    spec = {
        "group": at.group,
        "scope": "Namespaced" if at.namespaced else "Cluster",
        "names": {"plural": at.plural, "kind": at.kind, "singular": at.kind.lower()},
        "versions": [version],
    }
    meta = {
        "name": f"{at.plural}.{at.group}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, test"},
    }
    return {"apiVersion": CRDS.api_version, "kind": CRDS.kind, "metadata": meta, "spec": spec}


def test_a_snapshot_of_a_volume_in_use_is_restored_to_another_volume(tmp_path: Path) -> None:
    async def story() -> None:
        async with tenant(tmp_path) as one:
            before = one.stage.all_disks()
            for kind in (
                VOLUME_SNAPSHOTS,
                VOLUME_SNAPSHOT_CONTENTS,
                VOLUME_SNAPSHOT_CLASSES,
            ):  # long after the controllers started
                await one.create(_definition(kind), CRDS)
            await one.claim("a")
            await one.pod("a", "a")
            await one.runs("a")
            storage_class = {
                "apiVersion": VOLUME_SNAPSHOT_CLASSES.api_version,
                "kind": VOLUME_SNAPSHOT_CLASSES.kind,
                "metadata": {"name": "now"},
                "driver": "csi.moxwell.dev",
                "deletionPolicy": "Delete",
            }
            await one.create(storage_class, VOLUME_SNAPSHOT_CLASSES)
            spec = {"volumeSnapshotClassName": "now", "source": {"persistentVolumeClaimName": "a"}}
            body = _head(VOLUME_SNAPSHOTS.api_version, VOLUME_SNAPSHOTS.kind, "s") | {"spec": spec}
            await one.create(body, VOLUME_SNAPSHOTS)
            source = {
                "apiGroup": VOLUME_SNAPSHOTS.group,
                "kind": VOLUME_SNAPSHOTS.kind,
                "name": "s",
            }
            await one.claim("b", source=source)
            await one.pod("b", "b")
            await one.runs("b")
            status = (await one.kube.get(VOLUME_SNAPSHOTS, "s", "default"))["status"]
            assert (status["readyToUse"], status["restoreSize"]) == (True, "1Gi")
            for at, name in (
                (PODS, "a"),
                (PODS, "b"),
                (PERSISTENT_VOLUME_CLAIMS, "a"),
                (PERSISTENT_VOLUME_CLAIMS, "b"),
            ):
                await one.kube.delete(at, name, "default")
            await one.kube.delete(VOLUME_SNAPSHOTS, "s", "default")
            await one.gone(VOLUME_SNAPSHOTS)
            await one.gone(PERSISTENT_VOLUMES)
            await one.until("nothing is left", lambda: _same(one, before))

    run_virtual(story())


async def _same(one: Tenant, before: list[str]) -> bool:
    return one.stage.all_disks() == before


def scratch(storage_class: str = "proxmox-local-lvm") -> Json:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}


def test_an_ephemeral_volume_is_created_and_deleted_with_its_pod(tmp_path: Path) -> None:
    async def story() -> None:
        async with tenant(tmp_path) as one:
            await one.pod("a", "", volumes=[scratch()])
            node = (await one.runs("a"))["spec"]["nodeName"]
            assert len(one.held(int(node[1:]))) == 1
            await one.kube.delete(
                PERSISTENT_VOLUME_CLAIMS, "a-scratch", "default"
            )  # in use: kept until the pod is deleted
            await asyncio.sleep(10)
            assert len(one.held(int(node[1:]))) == 1
            await one.kube.delete(PODS, "a", "default")
            await one.gone(PERSISTENT_VOLUME_CLAIMS)
            await one.gone(PERSISTENT_VOLUMES)
            assert one.stage.volumes("local-lvm") == []

    run_virtual(story())


def test_a_pod_does_not_use_an_ephemeral_claim_that_it_does_not_own(tmp_path: Path) -> None:
    async def story() -> None:
        async with tenant(tmp_path) as one:
            await one.claim("a-scratch")
            await one.pod("a", "", volumes=[scratch()])
            await one.has_event("Pod", "a", "FailedBinding", "pod is not owner")
            await one.has_event("Pod", "a", "FailedScheduling", "pod is not owner")
            await one.kube.delete(PERSISTENT_VOLUME_CLAIMS, "a-scratch", "default")
            assert (await one.runs("a"))["spec"]["nodeName"]

    run_virtual(story())


def test_an_available_volume_is_bound_when_a_pod_uses_the_claim(tmp_path: Path) -> None:
    async def story() -> None:
        async with tenant(tmp_path) as one:
            created = await calls.create(one.controller, "pvc-old", "local-lvm", zone="r1-h1")
            await one.storage_class("bare", "WaitForFirstConsumer", provisioner=NO_PROVISIONER)
            spec = {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "storageClassName": "bare",
                "persistentVolumeReclaimPolicy": "Retain",
                "csi": {"driver": "csi.moxwell.dev", "volumeHandle": created.volume_id},
                "nodeAffinity": affinity([{REGION: "r1", ZONE: "r1-h1"}]),
            }
            body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "old"}}
            await one.claim("a", "bare")
            await one.pod("a", "a")
            await one.has_event(
                "Pod", "a", "FailedScheduling", "available persistent volumes to bind"
            )
            await one.create(body | {"spec": spec}, PERSISTENT_VOLUMES)
            assert (await one.runs("a"))["spec"]["nodeName"] == "n102"
            assert len(one.held(102)) == 1
            bound = await one.kube.get(PERSISTENT_VOLUME_CLAIMS, "a", "default")
            assert bound["spec"]["volumeName"] == "old"

    run_virtual(story())
