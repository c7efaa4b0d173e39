"""Which addresses a simulated kubelet reports: those that a genuine one reports, and no others."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.kube.client import Kube
from moxwell.lab.guests.kubelet import NodeFacts, SimulatedKubelet, own_addresses
from moxwell.testing.api_calls import ApiClient
from moxwell.testing.loop import LoopClock, run_virtual

FACTS = NodeFacts(
    name="n1",
    uuid="6c0f3b1e-0000-4000-8000-000000000001",
    version="v1.36.3",
    cpus=2,
    memory_mib=2048,
    addresses=("10.0.0.9/24", "2001:db8::9/64"),
)
EXTERNAL = {"cloud-provider": "external"}
HOST = {"type": "Hostname", "address": "n1"}


@pytest.mark.parametrize(
    "args, found",
    [
        pytest.param({}, ["10.0.0.9", "2001:db8::9"], id="no cloud provider"),
        pytest.param(EXTERNAL, [], id="the cloud controllers set them"),
        pytest.param(EXTERNAL | {"node-ip": "10.0.0.9"}, ["10.0.0.9"], id="the node IP"),
        pytest.param(
            EXTERNAL | {"node-ip": "10.0.0.9,2001:db8::9"},
            ["10.0.0.9", "2001:db8::9"],
            id="dual stack",
        ),
    ],
)
def test_own_addresses(args: dict[str, str], found: list[str]) -> None:
    rows = own_addresses(replace(FACTS, args=args))
    assert rows == [*({"type": "InternalIP", "address": a} for a in found), HOST]


def test_addresses_of_the_cloud_controllers_stay() -> None:
    async def story() -> None:
        async with EmbeddedApiServer(clock=LoopClock()) as server:
            api, facts = ApiClient(server), replace(FACTS, args=EXTERNAL)
            task = asyncio.create_task(SimulatedKubelet(Kube(server), facts, LoopClock()).run())
            await asyncio.sleep(30)
            assert await addresses(api) == [HOST]
            given = [{"type": "InternalIP", "address": "10.0.0.9"}, HOST]
            await api.patch("/api/v1/nodes/n1/status", {"status": {"addresses": given}})
            await asyncio.sleep(3600)
            assert await addresses(api) == given
            task.cancel()
            await asyncio.wait([task])

    run_virtual(story())


async def addresses(api: ApiClient) -> Any:
    return (await api.get("/api/v1/nodes/n1")).object["status"]["addresses"]
