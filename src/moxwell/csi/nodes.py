"""
Which guest a node id means.

In: ids of ours (``proxmox://region/vmid``) and of proxmox-csi-plugin (``name``, ``name/vmid``), and
the Node objects where there is a Kubernetes API. Out: region and VMID. The surprise is what is not
done: no guest is ever found by its name, because names are neither unique nor stable; a Node is
tied to its guest by provider id, annotation or system UUID.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moxwell.api.kinds import Resource
from moxwell.csi.ids import NodeRef, parse_node
from moxwell.csi.topology import REGION
from moxwell.errors import Missing
from moxwell.kube.client import Kube
from moxwell.pve.regions import Regions

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
INSTANCE = "proxmox.sinextra.dev/instance-id"


@dataclass(frozen=True, slots=True)
class Seated:
    """The guest that a node runs in."""

    region: str
    vmid: int
    uuid: str = ""  # what the node says its system UUID is


class Nodes:
    """Finds guests; remembers which id it was asked by."""

    def __init__(self, regions: Regions, kube: Kube | None = None) -> None:
        self._regions, self._kube = regions, kube
        self._ids: dict[tuple[str, int], str] = {}

    async def find(self, text: str) -> Seated:
        """The guest of a node id; raises Missing."""
        ref = parse_node(text)
        seated = await self._seated(ref)
        if seated.region not in self._regions:
            raise Missing(f"node {text} is in region {seated.region!r}, which is not configured")
        self._ids[(seated.region, seated.vmid)] = text
        return seated

    def id_of(self, region: str, vmid: int) -> str:
        """The node id that Kubernetes knows a guest by."""
        return self._ids.get((region, vmid), f"proxmox://{region}/{vmid}")

    async def _seated(self, ref: NodeRef) -> Seated:
        if ref.region and ref.vmid:
            return Seated(ref.region, ref.vmid)
        node = await self._node(ref.name)
        if node is not None:
            found = await self._by_object(node, ref.vmid)
            if found is not None:
                return found
        if ref.vmid and len(self._regions) == 1:
            return Seated(next(iter(self._regions)), ref.vmid)
        raise Missing(f"there is no node {ref.name!r} that tells its guest")

    async def _node(self, name: str) -> dict[str, Any] | None:
        return await self._kube.find(NODES, name) if self._kube is not None and name else None

    async def _by_object(self, node: Mapping[str, Any], vmid: int) -> Seated | None:
        meta, status = node.get("metadata", {}), node.get("status", {})
        uuid = str(status.get("nodeInfo", {}).get("systemUUID", "")).lower()
        provider = parse_node(node.get("spec", {}).get("providerID", ""))
        if provider.region and provider.vmid:
            return Seated(provider.region, provider.vmid, uuid)
        region = meta.get("labels", {}).get(REGION, "")
        known = vmid or int(meta.get("annotations", {}).get(INSTANCE) or 0)
        if region and known:
            return Seated(region, known, uuid)
        return await self._by_uuid(uuid, region)

    async def _by_uuid(self, uuid: str, region: str) -> Seated | None:
        for candidate in self._regions.values() if uuid else ():
            if region in ("", candidate.name):
                guest = await candidate.inventory.find_by_uuid(uuid)
                if guest is not None:
                    return Seated(candidate.name, guest.vmid, uuid)
        return None
