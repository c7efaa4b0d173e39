"""
Resolves CSI node ids to Proxmox guests; reads Node objects.

Node ids are ``proxmox://region/vmid`` (ours), ``name`` and ``name/vmid`` (proxmox-csi-plugin's). A
guest is never looked up by name, because names are neither unique nor stable: the provider ID, an
annotation or the system UUID of the Node identifies it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from moxwell.api.kinds import Resource
from moxwell.csi.ids import NodeId, parse_node
from moxwell.csi.topology import REGION
from moxwell.errors import Missing
from moxwell.kube.client import Kube
from moxwell.pve.regions import Region, Regions

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
INSTANCE_ID_ANNOTATION = "proxmox.sinextra.dev/instance-id"


@dataclass(frozen=True, slots=True)
class NodeGuest:
    """The guest that a Node runs in."""

    region: str
    vmid: int
    uuid: str = ""  # the system UUID that the Node reports


class GuestCheck(Protocol):
    """Decides whether a guest may be a node of the cluster that the driver serves."""

    async def refuse_foreign(self, region: Region, vmid: int) -> None:
        """Raise a Denied error for a guest of another owner."""
        ...


class NodeLookup:
    """Resolves node ids and remembers the id by which each guest was addressed."""

    def __init__(
        self, regions: Regions, kube: Kube | None = None, guests: GuestCheck | None = None
    ) -> None:
        """``guests`` checks every guest; without it the Node objects are trusted."""
        self._regions, self._kube, self._guests = regions, kube, guests
        self._ids: dict[tuple[str, int], str] = {}

    async def find(self, text: str) -> NodeGuest:
        """The guest of a node id; raises Missing."""
        ref = parse_node(text)
        node_guest = await self._resolve(ref)
        if node_guest.region not in self._regions:
            raise Missing(
                f"node {text} is in region {node_guest.region!r}, which is not configured"
            )
        if self._guests is not None:
            await self._guests.refuse_foreign(self._regions[node_guest.region], node_guest.vmid)
        self._ids[(node_guest.region, node_guest.vmid)] = text
        return node_guest

    def id_of(self, region: str, vmid: int) -> str:
        """The node id by which Kubernetes addresses a guest."""
        return self._ids.get((region, vmid), f"proxmox://{region}/{vmid}")

    async def _resolve(self, ref: NodeId) -> NodeGuest:
        if ref.region and ref.vmid:
            return NodeGuest(ref.region, ref.vmid)
        node = await self._node(ref.name)
        if node is not None:
            found = await self._from_node(node, ref.vmid)
            if found is not None:
                return found
        if ref.vmid and len(self._regions) == 1:
            return NodeGuest(next(iter(self._regions)), ref.vmid)
        raise Missing(f"node {ref.name!r} is unknown or does not identify its guest")

    async def _node(self, name: str) -> dict[str, Any] | None:
        return await self._kube.find(NODES, name) if self._kube is not None and name else None

    async def _from_node(self, node: Mapping[str, Any], vmid: int) -> NodeGuest | None:
        meta, status = node.get("metadata", {}), node.get("status", {})
        uuid = str(status.get("nodeInfo", {}).get("systemUUID", "")).lower()
        provider = parse_node(node.get("spec", {}).get("providerID", ""))
        if provider.region and provider.vmid:
            return NodeGuest(provider.region, provider.vmid, uuid)
        region = meta.get("labels", {}).get(REGION, "")
        known = vmid or int(meta.get("annotations", {}).get(INSTANCE_ID_ANNOTATION) or 0)
        if region and known:
            return NodeGuest(region, known, uuid)
        return await self._from_uuid(uuid, region)

    async def _from_uuid(self, uuid: str, region: str) -> NodeGuest | None:
        for candidate in self._regions.values() if uuid else ():
            if region in ("", candidate.name):
                guest = await candidate.inventory.find_by_uuid(uuid)
                if guest is not None:
                    return NodeGuest(candidate.name, guest.vmid, uuid)
        return None
