"""
How the guests of a node class use the CPUs and memory of their host. Pure.

The operator sets the policy of all clusters (``--node-policy``) or of one, by an annotation of its
ProxmoxCluster. A node class may choose another one; in a tenant cluster none that pins or binds
more than the operator's. Huge pages of the host are for operators, since only root@pam sets them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.karpenter.annotations import HUGE_PAGES, NODE_POLICY
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.controllers.karpenter.proxmox.host_numa_reader import ObservedNuma
from moxwell.controllers.karpenter.proxmox.host_states import HostState
from moxwell.controllers.karpenter.proxmox.node_class_check import (
    NodeClassPart,
    NodeClassProblem,
    NodeClassReason,
)
from moxwell.scheduling.guest_hardware import compute
from moxwell.scheduling.inventory_model import HostKey, PendingGuest
from moxwell.scheduling.numa.guests import GuestCpuUse, read_use
from moxwell.scheduling.numa.host_numa import HostNuma, NodePolicy
from moxwell.scheduling.numa.topology import HostTopology

_RANK = {policy: rank for rank, policy in enumerate(NodePolicy)}
_PAGES = {"": 0, "2": 2, "1024": 1024}


@dataclass(frozen=True, slots=True)
class CpuPolicy:
    """The policy of a node class, and the size of its huge pages; 0: none."""

    policy: NodePolicy = NodePolicy.SIMPLE
    huge_page_mib: int = 0
    problem: NodeClassProblem | None = None

    @property
    def needs_numa(self) -> bool:
        return self.policy is not NodePolicy.SIMPLE and self.problem is None


def policy_of(
    node_class: ProxmoxNodeClass, cluster: ProxmoxCluster, default: NodePolicy, *, trusted: bool
) -> CpuPolicy:
    """The policy of a node class, or what is wrong with it."""
    highest = _read(cluster.metadata.annotations.get(NODE_POLICY, "")) or default
    given = node_class.metadata.annotations.get(NODE_POLICY, "")
    chosen = _read(given) if given else highest
    pages = _PAGES.get(node_class.metadata.annotations.get(HUGE_PAGES, ""))
    if chosen is None:
        known = ", ".join(NodePolicy)
        return _refused(NODE_POLICY, f"{given!r} is not a policy; use one of {known}")
    if not trusted and _RANK[chosen] > _RANK[highest]:
        return _refused(
            NODE_POLICY,
            f"the cluster may not use {chosen}; use {highest} or ask the operator to set the "
            "annotation of the ProxmoxCluster",
        )
    if pages is None:
        return _refused(HUGE_PAGES, "huge pages have 2 or 1024 MiB; set one of them")
    if pages and not trusted:
        return _refused(HUGE_PAGES, "only the operator's clusters may use huge pages; remove it")
    if pages and chosen is NodePolicy.SIMPLE:
        return _refused(HUGE_PAGES, f"huge pages need the policy numa or static in {NODE_POLICY}")
    return CpuPolicy(chosen, pages)


def _read(text: str) -> NodePolicy | None:
    return NodePolicy(text) if text in set(NodePolicy) else None


def _refused(annotation: str, text: str) -> CpuPolicy:
    message = f"metadata.annotations[{annotation}]: {text}"
    problem = NodeClassProblem(
        NodeClassPart.INFRASTRUCTURE, NodeClassReason.NODE_POLICY_NOT_ALLOWED, message
    )
    return CpuPolicy(problem=problem)


def machine_use(machine: ProxmoxMachine) -> GuestCpuUse | None:
    """What a machine uses of its host; None if its template decides, so its guest is read."""
    spec = machine.spec
    if not spec.num_cores or not spec.memory_mib:
        return None
    return read_use(compute(spec), spec.cpu_pinning.cpus if spec.cpu_pinning else "")


def with_numa(
    states: Iterable[HostState],
    observed: Mapping[HostKey, ObservedNuma],
    own: Iterable[tuple[HostKey, GuestCpuUse]],
    pending: Iterable[PendingGuest],
    policy: CpuPolicy,
    near: Callable[[HostKey, HostTopology], tuple[frozenset[int], ...]] = lambda key, topology: (),
) -> tuple[HostState, ...]:
    """
    The hosts with their NUMA nodes: guests of others, own machines and launches count.

    ``near`` returns the NUMA nodes of the devices that a guest gets on a host.
    """
    used: dict[HostKey, list[GuestCpuUse]] = {}
    for key, use in own:
        used.setdefault(key, []).append(use)
    for guest in pending:
        if guest.use is not None:
            used.setdefault(guest.key, []).append(guest.use)
    found = []
    for state in states:
        known = observed.get(state.room.key)
        if known is None:
            continue
        guests = (*known.others, *used.get(state.room.key, ()))
        numa = HostNuma(
            known.topology,
            guests,
            policy.policy,
            state.cpu_overcommit,
            policy.huge_page_mib,
            near(state.room.key, known.topology),
        )
        found.append(replace(state, room=replace(state.room, numa=numa)))
    return tuple(found)
