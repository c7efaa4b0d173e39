"""The lease of a node is owned by the Node, as a kubelet's is, and deleted with it."""

import asyncio

from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.kube.client import Kube
from moxwell.lab.guests.kubelet import NodeFacts, SimulatedKubelet
from moxwell.testing.api_calls import ApiClient
from moxwell.testing.loop import LoopClock, run_virtual

FACTS = NodeFacts(
    name="n1",
    uuid="6c0f3b1e-0000-4000-8000-000000000001",
    version="v1.36.3",
    cpus=2,
    memory_mib=2048,
    addresses=("10.0.0.9/24",),
)
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


async def run_for(server: EmbeddedApiServer, seconds: float) -> None:
    task = asyncio.create_task(SimulatedKubelet(Kube(server), FACTS, LoopClock()).run())
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.wait([task])


def test_the_lease_goes_with_its_node() -> None:
    async def story() -> None:
        async with EmbeddedApiServer(clock=LoopClock()) as server:
            api = ApiClient(server)
            await run_for(server, 30)
            node = (await api.get("/api/v1/nodes/n1")).object
            lease = (await api.get(f"{LEASE}/n1")).object
            assert [o["uid"] for o in lease["metadata"]["ownerReferences"]] == [
                node["metadata"]["uid"]
            ]
            await api.delete("/api/v1/nodes/n1")
            await asyncio.sleep(60)
            assert (await api.get(LEASE)).object["items"] == []

    run_virtual(story())


def test_a_lease_without_owner_gets_one() -> None:
    """Earlier versions created leases without an owner."""

    async def story() -> None:
        async with EmbeddedApiServer(clock=LoopClock()) as server:
            api = ApiClient(server)
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "n1"},
                "spec": {"holderIdentity": "n1"},
            }
            await api.post(LEASE, lease)
            await run_for(server, 30)
            await api.delete("/api/v1/nodes/n1")
            await asyncio.sleep(60)
            assert (await api.get(LEASE)).object["items"] == []

    run_virtual(story())


def test_a_node_that_was_deleted_under_a_running_kubelet_gets_a_new_lease() -> None:
    async def story() -> None:
        async with EmbeddedApiServer(clock=LoopClock()) as server:
            api = ApiClient(server)
            task = asyncio.create_task(SimulatedKubelet(Kube(server), FACTS, LoopClock()).run())
            await asyncio.sleep(30)
            await api.delete("/api/v1/nodes/n1")
            await asyncio.sleep(900)
            node = (await api.get("/api/v1/nodes/n1")).object
            (lease,) = (await api.get(LEASE)).object["items"]
            assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
            task.cancel()
            await asyncio.wait([task])

    run_virtual(story())
