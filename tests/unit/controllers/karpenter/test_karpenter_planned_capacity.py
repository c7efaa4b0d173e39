"""Node claims that are planned on a host count there until they have a Machine."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.nodepools import NodePool
from moxwell.controllers.karpenter.disruption.execution import new_command
from moxwell.controllers.karpenter.names import PLANNED_SIZE
from moxwell.controllers.karpenter.planned_size import plan_annotations, planned_guest
from moxwell.controllers.karpenter.proxmox.instance_record import machine_name
from moxwell.controllers.karpenter.proxmox.planned_capacity import (
    REPORT_SECONDS,
    PlannedCapacity,
    others,
    planned_guests,
)
from moxwell.runtime.key import Key
from moxwell.scheduling.disruption.commands import DisruptionCommand, NodeReplacement
from moxwell.scheduling.guest_offerings import LABELS, instance_types
from moxwell.scheduling.guest_sizes import make_size
from moxwell.scheduling.host_room import HostedGuest, HostRoom
from moxwell.scheduling.inventory_model import GIB, HostKey, PendingGuest
from moxwell.scheduling.numa.guests import GuestCpuUse
from moxwell.scheduling.packing.cluster import ClusterSnapshot, ProvisioningPool
from moxwell.scheduling.packing.host_ledger import HostSlot
from moxwell.scheduling.packing.solver import Solver
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.node_claims import claim_object, pool_object
from unit.scheduling.packing_scenes import pod

Json = dict[str, Any]
CLUSTER, OTHER = Key("default", "c"), Key("default", "d")
HOST = HostKey("north", "pve1")
SIZE = make_size(4, 8 * GIB, "c1", disk_gib=30)
SLOT = HostSlot("default", 0, HOST, 0.1, HostedGuest(SIZE, GuestCpuUse(4, 8192)))
NUMA_USE = GuestCpuUse(4, 8192, frozenset({2, 3, 6, 7}), {0: 4096, 1: 4096}, 2, {0: 2, 1: 2})
GUEST = PendingGuest(HOST, 4, 8 * GIB, "ceph", 30 * GIB, GuestCpuUse(4, 8192))


def claim(name: str, **meta: Any) -> NodeClaim:
    given = {"uid": f"uid-{name}", "annotations": plan_annotations(SLOT)} | meta
    return msgspec.convert(claim_object(name, metadata=given), NodeClaim)


def test_the_plan_of_a_claim_is_read_back_as_used_capacity() -> None:
    assert planned_guest(claim("a"), "ceph") == GUEST
    assert planned_guest(claim("a", annotations={})) is None
    broken = plan_annotations(SLOT) | {PLANNED_SIZE: "large"}
    assert planned_guest(claim("a", annotations=broken)) is None


def test_a_plan_keeps_cpus_and_numa_nodes() -> None:
    slot = replace(SLOT, guest=HostedGuest(SIZE, NUMA_USE, (0, 1)))
    found = planned_guest(claim("a", annotations=plan_annotations(slot)))
    assert found is not None
    assert found.use == NUMA_USE


@pytest.mark.parametrize(
    "size",
    [
        {"cpus": -8, "memoryMiB": 8192},
        {"cpus": 4, "memoryMiB": -1},
        {"cpus": 4, "memoryMiB": 8192, "numaMemoryMiB": {"0": -4096}},
        {"cpus": 4, "memoryMiB": 8192, "pinned": "3-1"},
    ],
)
def test_a_plan_never_adds_room(size: Json) -> None:
    given = plan_annotations(SLOT) | {PLANNED_SIZE: json.dumps(size)}
    assert planned_guest(claim("a", annotations=given)) is None


def test_of_two_claims_the_older_one_does_not_give_way() -> None:
    created = ("2026-01-01T00:00:01Z", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
    a, b, c = (claim(n, creationTimestamp=t) for n, t in zip("abc", created, strict=True))
    for own, older in ((a, [b, c]), (b, []), (c, [b])):
        assert others([a, b, c], own, older=True) == older
        assert len(others([a, b, c], own, older=False)) == 2


def test_claims_with_a_machine_or_that_end_do_not_count() -> None:
    ends = claim("b", deletionTimestamp="2026-01-01T00:00:00Z")
    known = [claim("a"), ends, claim("c")]
    made = f"default/{machine_name('c', 'c', 'uid-c')}"
    assert planned_guests(CLUSTER, known, {made}, "ceph") == (GUEST,)
    assert len(planned_guests(CLUSTER, known, set(), "ceph")) == 2


def test_a_replacement_names_its_planned_host_and_size() -> None:
    rooms = [HostRoom(HostKey("north", name), 16, 64 * GIB, 500 * GIB) for name in ("a", "b")]
    pool = ProvisioningPool("default", instance_types([SIZE], rooms))
    solver = Solver(ClusterSnapshot((pool,), rules=LABELS))
    (plan,) = solver.solve([pod("p", "3", "5Gi")]).claims
    both = tuple(NodeReplacement(plan, plan.requirements, plan.options) for _ in range(2))
    pools = {"default": msgspec.convert(pool_object(), NodePool)}
    now = datetime(2026, 1, 1, tzinfo=UTC)
    command = DisruptionCommand((), both)
    new = new_command(command, "multi", "Underutilized", (), (), pools, now)
    found = [planned_guest(c) for c in new.replacements]
    assert [f and (str(f.key), f.cpus) for f in found] == [("north/a", 4), ("north/b", 4)]


def test_clusters_see_each_others_plans_until_they_are_old() -> None:
    async def story() -> None:
        capacity, other = PlannedCapacity(LoopClock()), replace(GUEST, cpus=2)
        assert capacity.report(CLUSTER, [GUEST]) == (GUEST,)
        assert capacity.report(OTHER, [other]) == (GUEST, other)
        assert capacity.report(CLUSTER, []) == (other,)
        await asyncio.sleep(REPORT_SECONDS)
        assert capacity.report(CLUSTER, []) == ()

    run_virtual(story())
