"""
Guests as karpenter-provider-proxmox leaves them, with their nodes and node claims.

The guest is made with the requests of the provider v0.12.0 in their order (a full clone with its
name, then one configuration with cores, memory, tags, SMBIOS and queues, then the start), and its
node and node claim are written as that provider and Karpenter leave them.
"""

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.kinds import Resource
from moxwell.clock import Clock
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.kube.client import Kube
from moxwell.pve.client import PveWriter
from moxwell.testing.karpenter_environment import node_claim

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
REGION, HOST, TEMPLATE = "south", "pve1", 9000
ADOPT_TAG = "moxwell-adopt.default.c"
# the instance type, and the host name with the VMID, as the provider writes them
SMBIOS = "uuid=7b9b3c5e-3f5c-4f0a-9a34-6d2d4b7b5a01,base64=1,sku={sku},serial={serial}"
LABELS = {
    "karpenter.sh/nodepool": "default",
    "node.kubernetes.io/instance-type": "c1.2VCPU-4GB",
    "topology.kubernetes.io/region": REGION,
    "topology.kubernetes.io/zone": HOST,
    "karpenter.sh/capacity-type": "on-demand",
    "karpenter.sh/registered": "true",
    "karpenter.sh/initialized": "true",
}
HASHES = {
    "karpenter.proxmox.sinextra.dev/proxmoxnodeclass-hash": "5216829431049532163",
    "karpenter.proxmox.sinextra.dev/proxmoxnodeclass-hash-version": "v1",
}


async def make_guest(pve: PveWriter, vmid: int, name: str) -> None:
    """What the provider sends for a launch without metadata."""
    await pve.qemu.clone(HOST, TEMPLATE, vmid, name=name, description=name, full=True)
    await asyncio.sleep(60)
    serial = _encoded(f"h={name};i={vmid}")
    await pve.qemu.configure(
        HOST,
        vmid,
        {
            "cores": "2",
            "memory": "4096",
            "tags": "karpenter",
            "smbios1": SMBIOS.format(sku=_encoded("c1.2VCPU-4GB"), serial=serial),
            "net0": "virtio=BC:24:11:00:00:07,bridge=vmbr0,queues=2",
        },
    )
    await pve.qemu.start(HOST, vmid)
    await asyncio.sleep(30)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def write_node(kube: Kube, vmid: int, name: str) -> NodeClaim:
    """The node and the node claim as Karpenter has them after the launch."""
    provider_id = f"proxmox://{REGION}/{vmid}"
    body = node_claim(name, {"cpu": "1"})
    body["metadata"] |= {"labels": LABELS, "annotations": HASHES}
    await kube.create(body, NodeClaim.resource)
    node: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": LABELS | {"kubernetes.io/hostname": name}},
        "spec": {"providerID": provider_id},
    }
    await kube.create(node, NODES)
    amounts = {"cpu": "2", "memory": "4Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]
    status: dict[str, Any] = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
    await kube.merge_status(NODES, name, {"status": status})
    conditions = [
        {"type": t, "status": "True", "reason": t, "message": "",
         "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for t in ("Launched", "Registered", "Initialized", "Ready")
    ]  # fmt: skip
    status = {"providerID": provider_id, "nodeName": name, "imageID": "9000-1234"}
    status |= {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
    await kube.merge_status(NodeClaim, name, {"status": status})
    return await kube.get(NodeClaim, name)


async def send_heartbeats(kube: Kube, clock: Clock, nodes: Sequence[str]) -> None:
    """The leases of kubelets that run on without interruption."""
    while True:
        now = clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        for name in nodes:
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": "kube-node-lease"},
                "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now},
            }
            await kube.apply(lease, LEASES, manager="kubelet", force=True)
        await asyncio.sleep(10)
