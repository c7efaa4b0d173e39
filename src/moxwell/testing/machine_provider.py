"""
A provider of machines in memory, and the checks that every provider must pass.

:class:`MemoryMachineProvider` launches the cheapest instance type that a node claim allows. Tests
decide when machines become visible, which launches fail and which offerings are used up.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.api.kinds import Resource, as_dict
from moxwell.controllers.karpenter.provider import (
    InstanceState,
    LaunchFailure,
    MachineProvider,
    NodeClassState,
    NodeInstance,
)
from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists
from moxwell.scheduling.packing.instance_types import InstanceType, Offering
from moxwell.scheduling.packing.pod_parsing import pool_requirements
from moxwell.scheduling.packing.pods import pairs
from moxwell.scheduling.requirements import LabelRequirement
from moxwell.scheduling.resource_lists import offered, quantity_text, requested
from moxwell.scheduling.spot_room import RoomNeed, SpotGuest, SpotInterruption
from moxwell.scheduling.well_known_labels import (
    ARCH,
    CAPACITY_TYPE,
    HOSTNAME,
    INSTANCE_TYPE,
    ON_DEMAND,
    OS,
    REGION,
    ZONE,
)

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
UNREGISTERED = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}
READY_SINCE = "2026-01-01T00:00:00Z"


def machine_type(
    name: str,
    cpu: int,
    memory: str,
    price: float,
    zones: tuple[str, ...] = ("host-1", "host-2"),
    capacity_type: str = ON_DEMAND,
) -> InstanceType:
    """An instance type of the region ``region-1`` with an offering per zone."""
    labels = {INSTANCE_TYPE: name, ARCH: "amd64", OS: "linux", REGION: "region-1"}
    fixed = tuple(LabelRequirement(k, False, frozenset({v})) for k, v in labels.items())
    varying = (
        LabelRequirement(ZONE, False, frozenset(zones)),
        LabelRequirement(CAPACITY_TYPE, False, frozenset({capacity_type})),
    )
    return InstanceType(
        name,
        offered({"cpu": cpu, "memory": memory, "pods": 110}),
        requested({"cpu": "100m", "memory": "256Mi"}),
        (*fixed, *varying),
        tuple(
            Offering(pairs({ZONE: z, REGION: "region-1", CAPACITY_TYPE: capacity_type}), price)
            for z in zones
        ),
    )


def default_types() -> tuple[InstanceType, ...]:
    """Three sizes whose price is proportional to their size."""
    return (
        machine_type("t1.2VCPU-4GB", 2, "4Gi", 0.02),
        machine_type("t1.4VCPU-8GB", 4, "8Gi", 0.04),
        machine_type("t1.8VCPU-16GB", 8, "16Gi", 0.08),
    )


class MemoryMachineProvider:
    """A :class:`MachineProvider` without machines; every launch succeeds at once by default."""

    def __init__(self, types: tuple[InstanceType, ...] | None = None) -> None:
        self.types = default_types() if types is None else types
        self.class_state: NodeClassState | None = NodeClassState(ready=True, reason="Ready")
        self.held = False  # True: instances stay pending until ``release``
        self.failing: dict[str, tuple[LaunchFailure, str]] = {}  # by name of the instance type
        self.drifted: dict[str, str] = {}  # claim to reason
        self.machines: dict[str, NodeInstance] = {}  # by UID of the claim
        self.slow_termination = False  # True: instances stay terminating until ``release``
        self.spot: tuple[SpotGuest, ...] = ()
        self.interrupted: tuple[SpotInterruption, ...] = ()
        self.asked: tuple[RoomNeed, ...] = ()  # the needs of the last ``interruptions``
        self.launches = 0
        self._numbers = 100

    # InstanceReader

    async def instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        return tuple(self._available(each) for each in self.types)

    async def node_class(self, pool: NodePool) -> NodeClassState | None:
        return self.class_state

    async def instance(self, claim: NodeClaim) -> NodeInstance | None:
        return self.machines.get(claim.metadata.uid)

    async def instances(self) -> tuple[NodeInstance, ...]:
        return tuple(self.machines[uid] for uid in sorted(self.machines))

    async def drift(self, claim: NodeClaim) -> str:
        return self.drifted.get(claim.metadata.name, "")

    async def spot_guests(self) -> tuple[SpotGuest, ...]:
        return self.spot

    async def interruptions(self, pods: Iterable[RoomNeed]) -> tuple[SpotInterruption, ...]:
        known = {m.uid for m in self.machines.values()}
        self.asked = tuple(pods)
        return tuple(i for i in self.interrupted if i.guest.claim in known)

    # InstanceWriter

    async def launch(self, claim: NodeClaim) -> None:
        uid = claim.metadata.uid
        if uid in self.machines:
            return
        self.launches += 1
        self.machines[uid] = self._made(claim)

    async def terminate(self, claim: str, uid: str) -> None:
        known = self.machines.get(uid)
        if known is None:
            return
        if self.slow_termination:
            self.machines[uid] = replace(known, state=InstanceState.TERMINATING)
        else:
            del self.machines[uid]

    # For tests

    def release(self) -> None:
        """Finish every launch and termination that is under way."""
        for uid, known in tuple(self.machines.items()):
            if known.state is InstanceState.PENDING:
                self.machines[uid] = replace(known, state=InstanceState.LAUNCHED)
            elif known.state is InstanceState.TERMINATING:
                del self.machines[uid]

    def lose(self, claim: str) -> None:
        """Let the machine of a claim vanish, as with its host."""
        gone = [uid for uid, m in self.machines.items() if m.claim == claim]
        for uid in gone:
            del self.machines[uid]

    def _available(self, each: InstanceType) -> InstanceType:
        """The type, without offerings if its launches fail for lack of capacity."""
        failure = self.failing.get(each.name)
        if failure is None or failure[0] is not LaunchFailure.INSUFFICIENT_CAPACITY:
            return each
        used_up = tuple(replace(o, available=False) for o in each.offerings)
        return replace(each, offerings=used_up)

    def _made(self, claim: NodeClaim) -> NodeInstance:
        found = choose(self.types, claim)
        name, uid = claim.metadata.name, claim.metadata.uid
        if found is None:
            return _failed(name, uid, LaunchFailure.INSUFFICIENT_CAPACITY, "no compatible offering")
        each, offering = found
        if failure := self.failing.get(each.name):
            return _failed(name, uid, *failure)
        self._numbers += 1
        return NodeInstance(
            name,
            uid,
            InstanceState.PENDING if self.held else InstanceState.LAUNCHED,
            provider_id=f"proxmox://region-1/{self._numbers}",
            image_id="9000",
            labels=_single_values(each) | dict(offering.labels),
            capacity=_texts(each.capacity),
            allocatable=_texts(each.allocatable),
        )


def choose(
    types: tuple[InstanceType, ...], claim: NodeClaim
) -> tuple[InstanceType, Offering] | None:
    """The cheapest offering that the requirements of a claim allow."""
    tree = as_dict(claim)["spec"]["requirements"]
    wanted = {r.key: r for r in pool_requirements(tree)}
    found = [
        (offering.price, each.name, each, offering)
        for each in types
        if _allows(wanted, each.requirements)
        for offering in each.offerings
        if offering.available
        and all(k not in wanted or wanted[k].has(v) for k, v in offering.labels)
    ]
    if not found:
        return None
    _, _, each, offering = min(found, key=lambda f: f[:2])
    return each, offering


def _allows(
    wanted: Mapping[str, LabelRequirement], offered_by: tuple[LabelRequirement, ...]
) -> bool:
    return all(r.key not in wanted or wanted[r.key].intersects(r) for r in offered_by)


def _single_values(each: InstanceType) -> dict[str, str]:
    return {r.key: r.only for r in each.requirements if r.only is not None}


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: quantity_text(name, amount) for name, amount in amounts.items()}


def _failed(name: str, uid: str, failure: LaunchFailure, message: str) -> NodeInstance:
    return NodeInstance(name, uid, InstanceState.FAILED, failure=failure, message=message)


async def join_nodes(kube: Kube, provider: MemoryMachineProvider) -> None:
    """Register a ready Node for each launched machine, as a kubelet does."""
    for machine in await provider.instances():
        launched = machine.state is InstanceState.LAUNCHED
        if launched and await kube.find(NODES, machine.claim) is None:
            await _join(kube, machine)


async def _join(kube: Kube, machine: NodeInstance) -> None:
    tree = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": machine.claim, "labels": {HOSTNAME: machine.claim}},
        "spec": {"providerID": machine.provider_id, "taints": [UNREGISTERED]},
    }
    try:
        await kube.create(tree, NODES)
    except AlreadyExists:
        return
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "lastTransitionTime": READY_SINCE,
    }
    status = {
        "capacity": dict(machine.capacity),
        "allocatable": dict(machine.allocatable),
        "conditions": [ready],
    }
    await kube.merge_status(NODES, machine.claim, {"status": status})


@dataclass(frozen=True, slots=True)
class ProviderUnderTest:
    """
    A provider with what the checks need.

    ``claim`` makes a node claim of a name, which exists wherever the provider looks for it.
    ``settle`` lets what the provider began make progress.
    """

    provider: MachineProvider
    pool: NodePool
    claim: Callable[[str], Awaitable[NodeClaim]]
    settle: Callable[[], Awaitable[None]]


async def check_lists_types_with_offerings(given: ProviderUnderTest) -> None:
    """A ready node class has types, each with a priced offering that names its zone."""
    state = await given.provider.node_class(given.pool)
    assert state is not None
    assert state.ready
    types = await given.provider.instance_types(given.pool)
    assert types
    for each in types:
        assert each.offerings, each.name
        assert all(o.zone and o.capacity_type and o.price >= 0 for o in each.offerings)
        assert all(a >= 0 for a in each.allocatable.values()), each.name


async def check_no_instance_before_launch(given: ProviderUnderTest) -> None:
    """A claim that was never launched has no instance, and its termination is no error."""
    claim = await given.claim("never-launched")
    assert await given.provider.instance(claim) is None
    await given.provider.terminate(claim.metadata.name, claim.metadata.uid)
    assert await given.provider.instance(claim) is None


async def check_repeated_launch_continues(given: ProviderUnderTest) -> None:
    """Launching twice makes one instance; it gets a provider id and labels."""
    claim = await given.claim("launched-twice")
    await given.provider.launch(claim)
    await given.provider.launch(claim)
    await given.settle()
    await given.provider.launch(claim)
    own = [i for i in await given.provider.instances() if i.uid == claim.metadata.uid]
    assert [i.claim for i in own] == [claim.metadata.name]
    found = await given.provider.instance(claim)
    assert found is not None
    assert found.state is InstanceState.LAUNCHED, found
    assert found.provider_id.startswith("proxmox://")
    assert {INSTANCE_TYPE, ZONE, CAPACITY_TYPE} <= set(found.labels)
    assert {"cpu", "memory"} <= set(found.capacity) & set(found.allocatable)


async def check_terminated_instance_is_gone(given: ProviderUnderTest) -> None:
    """Terminating twice is harmless; in the end there is no instance."""
    claim = await given.claim("terminated")
    await given.provider.launch(claim)
    await given.settle()
    await given.provider.terminate(claim.metadata.name, claim.metadata.uid)
    await given.provider.terminate(claim.metadata.name, claim.metadata.uid)
    await given.settle()
    assert await given.provider.instance(claim) is None
    assert claim.metadata.uid not in {i.uid for i in await given.provider.instances()}


PROVIDER_CHECKS = (
    check_lists_types_with_offerings,
    check_no_instance_before_launch,
    check_repeated_launch_continues,
    check_terminated_instance_is_gone,
)
