"""What a simulated node tells Proxmox about the pods that run on it."""

import asyncio
from typing import Any

import pytest

from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.kube.client import Kube
from moxwell.lab.guests.kubelet import NodeFacts, SimulatedKubelet
from moxwell.lab.guests.pod_usage import ResourceUsage
from moxwell.testing.api_calls import ApiClient
from moxwell.testing.loop import LoopClock, run_virtual

FACTS = NodeFacts(
    name="n1", uuid="u1", version="v1.36.3", cpus=4, memory_mib=8192, addresses=("10.0.0.9/24",)
)
PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, **requests: str) -> dict[str, Any]:
    container = {"name": "c", "image": "nginx", "resources": {"requests": requests}}
    spec = {"nodeName": "n1", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_a_node_reports_the_usage_of_its_running_pods_when_one_begins_or_ends() -> None:
    async def story() -> None:
        reported: list[ResourceUsage] = []
        async with EmbeddedApiServer(clock=LoopClock()) as server:
            api = ApiClient(server)
            kubelet = SimulatedKubelet(
                Kube(server), FACTS, LoopClock(), report_usage=reported.append
            )
            task = asyncio.create_task(kubelet.run())
            for name in ("a", "b"):
                await api.post(PODS, pod(name, cpu="1", memory="1Gi"))
                await asyncio.sleep(60)
            await api.delete(f"{PODS}/a")
            await asyncio.sleep(600)
            task.cancel()
            await asyncio.wait([task])
        assert [used.cpu for used in reported] == pytest.approx([0.4, 0.8, 0.4])
        assert reported[0].memory == pytest.approx(0.6 * (1 << 30))

    run_virtual(story())
