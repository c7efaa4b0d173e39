"""
Guests that karpenter-provider-proxmox made are adopted one by one, and nothing is replaced.

The guest is made with the requests of the provider v0.12.0 in their order (a full clone with its
name, then one configuration with cores, memory, tags, SMBIOS and queues, then the start), and its
node and node claim are written as that provider and Karpenter leave them.
"""

import asyncio
import base64
from typing import Any

from moxwell.api.capi.core import Machine
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.kinds import Resource
from moxwell.controllers.karpenter.provider import InstanceState
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.pve.client import PveWriter
from moxwell.pve.switchable_transport import SwitchableTransport
from moxwell.testing.karpenter_environment import (
    KarpenterEnvironment,
    karpenter_environment,
    node_claim,
)
from moxwell.testing.loop import run_virtual

LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
REGION, HOST, TEMPLATE = "south", "pve1", 9000
TAG = "moxwell-adopt.default.c"
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


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def make_guest(env: KarpenterEnvironment, vmid: int, name: str) -> None:
    """What the provider sends for a launch without metadata."""
    pve = PveWriter(SwitchableTransport(env.transports[REGION]))
    await pve.qemu.clone(HOST, TEMPLATE, vmid, name=name, description=name, full=True)
    await asyncio.sleep(60)
    serial = encoded(f"h={name};i={vmid}")
    await pve.qemu.configure(
        HOST,
        vmid,
        {
            "cores": "2",
            "memory": "4096",
            "tags": "karpenter",
            "smbios1": SMBIOS.format(sku=encoded("c1.2VCPU-4GB"), serial=serial),
            "net0": "virtio=BC:24:11:00:00:07,bridge=vmbr0,queues=2",
        },
    )
    await pve.qemu.start(HOST, vmid)
    await asyncio.sleep(30)


async def write_node(env: KarpenterEnvironment, vmid: int, name: str) -> NodeClaim:
    """The node and the node claim as Karpenter has them after the launch."""
    provider_id = f"proxmox://{REGION}/{vmid}"
    body = node_claim(name, {"cpu": "1"})
    body["metadata"] |= {"labels": LABELS, "annotations": HASHES}
    await env.kube.create(body, NodeClaim.resource)
    node: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": LABELS | {"kubernetes.io/hostname": name}},
        "spec": {"providerID": provider_id},
    }
    await env.kube.create(node, NODES)
    amounts = {"cpu": "2", "memory": "4Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]
    status: dict[str, Any] = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
    await env.kube.merge_status(NODES, name, {"status": status})
    conditions = [
        {"type": t, "status": "True", "reason": t, "message": "",
         "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for t in ("Launched", "Registered", "Initialized", "Ready")
    ]  # fmt: skip
    status = {"providerID": provider_id, "nodeName": name, "imageID": "9000-1234"}
    status |= {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
    await env.kube.merge_status(NodeClaim, name, {"status": status})
    return await env.kube.get(NodeClaim, name)


def conf(env: KarpenterEnvironment, vmid: int) -> dict[str, Any]:
    return dict(env.environment.engine.runtimes[REGION].region.guests[vmid].conf)


async def adopted_by_its_tag_only(env: KarpenterEnvironment) -> None:
    """A guest without the tag is left alone; with it, the guest is ours and stays as it is."""
    one, two = [await env.kube.get(NodeClaim, name) for name in ("default-one", "default-two")]
    await asyncio.sleep(600)
    assert not (await env.kube.list(Machine)).items
    before, other = conf(env, 20000), conf(env, 20001)
    pve = PveWriter(SwitchableTransport(env.transports[REGION]))
    await pve.qemu.configure(HOST, 20000, {"tags": f"karpenter;{TAG}"})

    async def is_ours() -> bool:
        conditions = [c for g in await env.stage.guests() for c in g.status.conditions]
        ready = any((c.type, c.status) == ("Ready", "True") for c in conditions)
        return ready and "moxwell" in str(conf(env, 20000)["tags"]).split(";")

    await env.stage.until("the guest is ours", is_ours)
    await asyncio.sleep(600)
    after = conf(env, 20000)
    changed = {k for k in before.keys() | after.keys() if before.get(k) != after.get(k)}
    assert changed <= {"tags", "description", "digest"}, changed
    assert "karpenter" in str(after["tags"]).split(";")
    assert TAG not in str(after["tags"])
    assert conf(env, 20001) == other
    for claim in (one, two):
        found = await env.kube.get(NodeClaim, claim.name)
        assert (found.uid, found.deleting) == (claim.uid, False)
        assert found.status.provider_id == claim.status.provider_id
        assert await env.provider.drift(found) == ""
    instance = await env.provider.instance(one)
    assert instance is not None
    assert instance.state is InstanceState.LAUNCHED
    assert instance.provider_id == one.status.provider_id
    assert [n["metadata"]["name"] for n in (await env.kube.list(NODES)).items] == [
        "default-one", "default-two"
    ]  # fmt: skip
    (machine,) = (await env.kube.list(Machine)).items
    assert machine.status.node_ref is not None
    assert machine.status.node_ref.name == "default-one"


async def deleted_as_its_own(env: KarpenterEnvironment) -> None:
    """The end of an adopted claim deletes its guest and nothing of the other one."""
    await env.kube.delete(NodeClaim, "default-one")

    async def gone() -> bool:
        return await env.kube.find(NodeClaim, "default-one") is None

    await env.stage.until("the claim is gone", gone)
    guests = env.environment.engine.runtimes[REGION].region.guests
    assert 20000 not in guests
    assert 20001 in guests


async def send_heartbeats(env: KarpenterEnvironment) -> None:
    """The leases of the kubelets, which run on without interruption."""
    while True:
        now = env.environment.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        for name in ("default-one", "default-two"):
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": "kube-node-lease"},
                "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now},
            }
            await env.kube.apply(lease, LEASES, manager="kubelet", force=True)
        await asyncio.sleep(10)


async def made_by_the_provider(env: KarpenterEnvironment) -> None:
    for vmid, name in (20000, "default-one"), (20001, "default-two"):
        await make_guest(env, vmid, name)
        await write_node(env, vmid, name)


def test_guests_of_the_provider_are_adopted_one_by_one() -> None:
    async def story() -> None:
        async with karpenter_environment() as first:
            beats = asyncio.create_task(send_heartbeats(first))
            await made_by_the_provider(first)
            async with first.restarted(claims=True) as env:
                await adopted_by_its_tag_only(env)
                await deleted_as_its_own(env)
            beats.cancel()

    run_virtual(story())
