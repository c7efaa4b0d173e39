"""The provider in memory passes the checks of a provider."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.controllers.karpenter.provider import InstanceState, LaunchFailure
from moxwell.testing.machine_provider import (
    PROVIDER_CHECKS,
    MemoryMachineProvider,
    ProviderUnderTest,
)

CLASS = {
    "group": "karpenter.proxmox.sinextra.dev",
    "kind": "ProxmoxNodeClass",
    "name": "default",
}
POOL = msgspec.convert(
    {
        "metadata": {"name": "default"},
        "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": CLASS}}},
    },
    NodePool,
)


async def claim_of(name: str, types: tuple[str, ...] = ()) -> NodeClaim:
    key = "node.kubernetes.io/instance-type"
    requirements = [{"key": key, "operator": "In", "values": types}] if types else []
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "spec": {"requirements": requirements, "nodeClassRef": CLASS},
        },
        NodeClaim,
    )


@pytest.mark.parametrize("check", PROVIDER_CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("slow", (False, True), ids=("at once", "slow"))
def test_the_provider_in_memory_passes(
    check: Callable[[ProviderUnderTest], Awaitable[None]], slow: bool
) -> None:
    provider = MemoryMachineProvider()
    provider.held = provider.slow_termination = slow

    async def settle() -> None:
        provider.release()

    asyncio.run(_run(check, ProviderUnderTest(provider, POOL, claim_of, settle)))


async def _run(
    check: Callable[[ProviderUnderTest], Awaitable[None]], given: ProviderUnderTest
) -> None:
    await check(given)


def test_the_cheapest_allowed_type_is_launched() -> None:
    async def story() -> None:
        provider = MemoryMachineProvider()
        claim = await claim_of("a", ("t1.8VCPU-16GB", "t1.4VCPU-8GB"))
        await provider.launch(claim)
        found = await provider.instance(claim)
        assert found is not None
        assert found.labels["node.kubernetes.io/instance-type"] == "t1.4VCPU-8GB"
        assert found.capacity["memory"] == "8Gi"

    asyncio.run(story())


def test_a_type_without_capacity_fails_and_is_offered_no_more() -> None:
    async def story() -> None:
        provider = MemoryMachineProvider()
        provider.failing["t1.2VCPU-4GB"] = (LaunchFailure.INSUFFICIENT_CAPACITY, "no room")
        claim = await claim_of("a")
        await provider.launch(claim)
        found = await provider.instance(claim)
        assert found is not None
        assert found.state is InstanceState.FAILED
        assert found.failure is LaunchFailure.INSUFFICIENT_CAPACITY
        types = await provider.instance_types(POOL)
        available = [t.name for t in types if any(o.available for o in t.offerings)]
        assert available == ["t1.4VCPU-8GB", "t1.8VCPU-16GB"]

    asyncio.run(story())
