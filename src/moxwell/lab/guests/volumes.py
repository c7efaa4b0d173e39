"""
The node side of persistent volumes in a simulated kubelet, without file systems.

A pod with PersistentVolumeClaims starts when each is bound, its VolumeAttachment is attached and
its disk is found in the guest by WWN and serial; until then a FailedMount event is recorded.
Updates the claim's capacity after a disk was resized. Registers the CSI driver in CSINode once the
cluster has the CSIDriver and the Node has its topology labels.
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from moxwell.api.kinds import Resource
from moxwell.api.quantity import Quantity
from moxwell.clock import Clock
from moxwell.errors import Conflict, Denied, Missing, MoxwellError, Retryable
from moxwell.kube.client import Kube
from moxwell.lab.guests import disks

Json = dict[str, Any]
DRIVER = "csi.moxwell.dev"
REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
GROUP = "storage.k8s.io"
PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
EVENTS = Resource("", "v1", "events", "Event")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
ATTACHMENTS = Resource(GROUP, "v1", "volumeattachments", "VolumeAttachment", namespaced=False)
CSI_DRIVERS = Resource(GROUP, "v1", "csidrivers", "CSIDriver", namespaced=False)
CSI_NODES = Resource(GROUP, "v1", "csinodes", "CSINode", namespaced=False)
POLL_SECONDS, RESIZE_SECONDS, REGISTER_SECONDS, EVENT_EVERY = 1.0, 4.0, 3.0, 20
LONGEST_REGISTER_SECONDS = 30.0  # where nobody installs the driver
CHECK_SECONDS = 600.0  # between two checks of a registered driver


def claims_of(pod: Mapping[str, Any]) -> list[str]:
    """The names of the claims of a pod, including ephemeral volumes."""
    found = []
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            found.append(str(volume["persistentVolumeClaim"]["claimName"]))
        elif "ephemeral" in volume:
            found.append(f"{pod['metadata']['name']}-{volume['name']}")
    return found


def csi_node_driver(node: Mapping[str, Any], most: int) -> Json | None:
    """The driver entry of the CSINode; None until the Node has its topology labels."""
    labels = node["metadata"].get("labels") or {}
    if not labels.get(REGION) or not labels.get(ZONE):
        return None
    provider = str(node["spec"].get("providerID") or "")
    known = provider.startswith("proxmox://") and provider.count("/") == 3
    return {
        "name": DRIVER,
        "nodeID": provider if known else node["metadata"]["name"],
        "topologyKeys": [REGION, ZONE],
        "allocatable": {"count": most},
    }


class VolumeManager:
    """The volumes of one node; ``live_config`` returns the configuration of the running VM."""

    def __init__(
        self, kube: Kube, node: str, live_config: Callable[[], Mapping[str, Any]], clock: Clock
    ) -> None:
        self._kube, self._node, self._plugged, self._clock = kube, node, live_config, clock
        self._pods: dict[str, Json] = {}  # pods with claims that run here
        self._has_pods = asyncio.Event()

    async def run(self) -> None:
        """Register the driver and resize file systems until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_registered())
            group.create_task(self._keep_resized())

    async def _keep_registered(self) -> None:
        pause = REGISTER_SECONDS
        while True:
            registered = False
            with suppress(MoxwellError):  # API unreachable, or a conflict
                registered = await self._register()
            await self._clock.sleep(CHECK_SECONDS if registered else pause)
            pause = REGISTER_SECONDS if registered else min(2 * pause, LONGEST_REGISTER_SECONDS)

    async def _keep_resized(self) -> None:
        while True:
            await self._has_pods.wait()
            with suppress(MoxwellError):
                await self._resize_all()
            await self._clock.sleep(RESIZE_SECONDS)

    # Pods

    def add_pod(self, pod: Json) -> None:
        """Add a running pod."""
        if claims_of(pod):
            self._pods[pod["metadata"]["uid"]] = pod
            self._has_pods.set()

    def remove_pod(self, uid: str) -> None:
        self._pods.pop(uid, None)
        if not self._pods:
            self._has_pods.clear()

    async def wait_mounted(self, pod: Json) -> bool:
        """
        Wait until every volume of the pod is attached; False if the pod was deleted meanwhile.
        """
        tries = 0
        while claims_of(pod):
            try:
                for claim in claims_of(pod):
                    await self._find_disk(claim, pod["metadata"]["namespace"])
                break
            except (
                MoxwellError
            ) as error:  # the node authorizer denies objects that do not exist yet
                tries += 1
                if tries % EVENT_EVERY == 0:
                    await self._record_event(pod, str(error))
            await self._clock.sleep(POLL_SECONDS)
            if not await self._still_exists(pod):
                return False
        self.add_pod(pod)
        return True

    async def _still_exists(self, pod: Json) -> bool:
        meta = pod["metadata"]
        try:
            now = await self._kube.find(PODS, meta["name"], meta["namespace"])
        except (Retryable, Denied):
            return True
        same = now is not None and now["metadata"]["uid"] == meta["uid"]
        return same and now is not None and "deletionTimestamp" not in now["metadata"]

    async def _find_disk(self, name: str, namespace: str) -> disks.ScsiDisk | None:
        """Find the disk of a claim; None for another CSI driver."""
        claim = await self._kube.get(CLAIMS, name, namespace)
        if not claim["spec"].get("volumeName"):
            raise disks.DiskNotFound(f'claim "{name}" is not bound yet')
        volume = await self._kube.get(VOLUMES, claim["spec"]["volumeName"])
        csi = volume["spec"].get("csi") or {}
        if csi.get("driver") != DRIVER:
            return None
        key = f"{csi['volumeHandle']}{DRIVER}{self._node}"
        attachment = await self._kube.get(
            ATTACHMENTS, "csi-" + hashlib.sha256(key.encode()).hexdigest()
        )
        status, pv = attachment.get("status") or {}, volume["metadata"]["name"]
        if not status.get("attached"):
            raise disks.DiskNotFound(f'volume "{pv}" is not attached yet')
        found = disks.find_disk(self._disks(), status.get("attachmentMetadata") or {})
        await self._update_capacity(claim, volume, found)
        return found

    def _disks(self) -> tuple[disks.ScsiDisk, ...]:
        return disks.list_disks(self._plugged())

    async def _record_event(self, pod: Json, message: str) -> None:
        now = self._clock.now()
        meta, at = pod["metadata"], now.strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{meta['name']}.{int(now.timestamp() * 1e6):x}",
                "namespace": meta["namespace"],
            },
            "type": "Warning",
            "reason": "FailedMount",
            "message": f"Unable to attach or mount volumes: {message}",
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
            "source": {"component": "kubelet", "host": self._node},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        try:
            await self._kube.create(event, EVENTS)
        except MoxwellError:
            return  # events are best effort

    # Resizing

    async def _resize_all(self) -> None:
        for pod in list(self._pods.values()):
            for claim in claims_of(pod):
                try:
                    await self._find_disk(claim, pod["metadata"]["namespace"])
                except (Missing, disks.DiskNotFound, disks.DiskMismatch):
                    continue

    async def _update_capacity(self, claim: Json, volume: Json, disk: disks.ScsiDisk) -> None:
        """Update the capacity of the claim after its disk was resized."""
        status = claim.get("status") or {}
        current, desired = _size(status.get("capacity")), _size(volume["spec"]["capacity"])
        if current >= desired or disk.size < desired:
            return
        conditions = [c for c in status.get("conditions") or () if c["type"] != PENDING]
        new_status = {
            "capacity": dict(volume["spec"]["capacity"]),
            "conditions": conditions or None,
        }
        meta = claim["metadata"]
        await self._kube.merge(
            CLAIMS, meta["name"], {"status": new_status}, meta["namespace"], subresource="status"
        )

    # CSINode

    async def _register(self) -> bool:
        """Write the driver to the CSINode; False while it cannot be registered yet."""
        if await self._kube.find(CSI_DRIVERS, DRIVER) is None:
            return False
        node = await self._kube.get(NODES, self._node)
        driver = csi_node_driver(node, disks.max_volumes(self._disks()))
        if driver is None:
            return False
        csi_node = await self._kube.find(CSI_NODES, self._node)
        if csi_node is None:
            await self._create_csi_node(node, driver)
            return True
        drivers = csi_node["spec"].get("drivers") or []
        if driver not in drivers:
            kept = [r for r in drivers if r["name"] != DRIVER]
            await self._kube.merge(CSI_NODES, self._node, {"spec": {"drivers": [*kept, driver]}})
        return True

    async def _create_csi_node(self, node: Json, driver: Json) -> None:
        owner = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": self._node,
            "uid": node["metadata"]["uid"],
        }
        body = {
            "apiVersion": CSI_NODES.api_version,
            "kind": CSI_NODES.kind,
            "metadata": {"name": self._node, "ownerReferences": [owner]},
            "spec": {"drivers": [driver]},
        }
        try:
            await self._kube.create(body, CSI_NODES)
        except Conflict:
            return


PENDING = "FileSystemResizePending"


def _size(of: Any) -> int:
    return Quantity.parse(str((of or {}).get("storage") or "0")).value
