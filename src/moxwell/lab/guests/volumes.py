"""
Volumes on a simulated node: the node's part of storage, without file systems.

A pod that has claims starts when each is bound, attached, and its disk is seen in the guest by WWN
and serial; until then the pod says why. A claim whose disk grew is told so here, as the file system
is the node's to grow. The driver registers itself (CSINode) when the cluster knows it and the cloud
controller has said where the node is. What a container would read is not simulated.
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
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
LOOK_SECONDS, GROW_SECONDS, REGISTER_SECONDS, TELL_AFTER = 1.0, 4.0, 3.0, 20


def claims_of(pod: Mapping[str, Any]) -> list[str]:
    """The claims that a pod names or brings with it."""
    found = []
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            found.append(str(volume["persistentVolumeClaim"]["claimName"]))
        elif "ephemeral" in volume:
            found.append(f"{pod['metadata']['name']}-{volume['name']}")
    return found


def node_row(node: Mapping[str, Any], most: int) -> Json | None:
    """What the driver says of its node; None until the cloud controller has placed it."""
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


class Volumes:
    """The volumes of one node; ``plugged`` says which drives the guest has now."""

    def __init__(
        self, kube: Kube, node: str, plugged: Callable[[], Mapping[str, Any]], clock: Clock
    ) -> None:
        self._kube, self._node, self._plugged, self._clock = kube, node, plugged, clock
        self._pods: dict[str, Json] = {}  # those that run here and have claims

    async def run(self) -> None:
        """Register and grow; ends only by being cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._often(REGISTER_SECONDS, self._register))
            group.create_task(self._often(GROW_SECONDS, self._grow_all))

    async def _often(self, seconds: float, act: Any) -> None:
        while True:
            try:
                await act()
            except MoxwellError:
                await self._clock.sleep(seconds)  # the API is away, or somebody was faster
            await self._clock.sleep(seconds)

    # Pods

    def keep(self, pod: Json) -> None:
        """The pod runs here."""
        if claims_of(pod):
            self._pods[pod["metadata"]["uid"]] = pod

    def forget(self, uid: str) -> None:
        self._pods.pop(uid, None)

    async def wait_mounted(self, pod: Json) -> bool:
        """Until every volume of the pod is there; False if the pod is not wanted any more."""
        tries = 0
        while claims_of(pod):
            try:
                for claim in claims_of(pod):
                    await self._look(claim, pod["metadata"]["namespace"])
                break
            except MoxwellError as error:  # a node authorizer denies what is not there yet
                tries += 1
                if tries % TELL_AFTER == 0:
                    await self._tell(pod, str(error))
            await self._clock.sleep(LOOK_SECONDS)
            if not await self._is_wanted(pod):
                return False
        self.keep(pod)
        return True

    async def _is_wanted(self, pod: Json) -> bool:
        meta = pod["metadata"]
        try:
            now = await self._kube.find(PODS, meta["name"], meta["namespace"])
        except (Retryable, Denied):
            return True
        same = now is not None and now["metadata"]["uid"] == meta["uid"]
        return same and now is not None and "deletionTimestamp" not in now["metadata"]

    async def _look(self, name: str, space: str) -> disks.Disk | None:
        """The disk of a claim; None for a claim of another driver."""
        claim = await self._kube.get(CLAIMS, name, space)
        if not claim["spec"].get("volumeName"):
            raise disks.NoDisk(f'claim "{name}" is not bound yet')
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
            raise disks.NoDisk(f'volume "{pv}" is not attached yet')
        found = disks.find_disk(self._disks(), status.get("attachmentMetadata") or {})
        await self._grown(claim, volume, found)
        return found

    def _disks(self) -> tuple[disks.Disk, ...]:
        return disks.list_disks(self._plugged())

    async def _tell(self, pod: Json, why: str) -> None:
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
            "message": f"Unable to attach or mount volumes: {why}",
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
            return  # it is only a word

    # Growing

    async def _grow_all(self) -> None:
        for pod in list(self._pods.values()):
            for claim in claims_of(pod):
                try:
                    await self._look(claim, pod["metadata"]["namespace"])
                except (Missing, disks.NoDisk, disks.WrongDisk):
                    continue

    async def _grown(self, claim: Json, volume: Json, disk: disks.Disk) -> None:
        """A file system follows its disk; the claim says how large it is now."""
        status = claim.get("status") or {}
        has, should = _size(status.get("capacity")), _size(volume["spec"]["capacity"])
        if has >= should or disk.size < should:
            return
        left = [c for c in status.get("conditions") or () if c["type"] != PENDING]
        said = {"capacity": dict(volume["spec"]["capacity"]), "conditions": left or None}
        meta = claim["metadata"]
        await self._kube.merge(
            CLAIMS, meta["name"], {"status": said}, meta["namespace"], subresource="status"
        )

    # The driver's registration

    async def _register(self) -> None:
        if await self._kube.find(CSI_DRIVERS, DRIVER) is None:
            return
        node = await self._kube.get(NODES, self._node)
        row = node_row(node, disks.most_volumes(self._disks()))
        if row is None:
            return
        there = await self._kube.find(CSI_NODES, self._node)
        if there is None:
            await self._create(node, row)
            return
        rows = there["spec"].get("drivers") or []
        if row not in rows:
            kept = [r for r in rows if r["name"] != DRIVER]
            await self._kube.merge(CSI_NODES, self._node, {"spec": {"drivers": [*kept, row]}})

    async def _create(self, node: Json, row: Json) -> None:
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
            "spec": {"drivers": [row]},
        }
        try:
            await self._kube.create(body, CSI_NODES)
        except Conflict:
            return


PENDING = "FileSystemResizePending"


def _size(of: Any) -> int:
    return Quantity.parse(str((of or {}).get("storage") or "0")).value
