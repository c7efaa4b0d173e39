"""Node claims that are planned on a host count there until they have a Machine."""

import asyncio
from dataclasses import replace
from typing import Any

import msgspec

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.controllers.karpenter.names import PLANNED_SIZE
from moxwell.controllers.karpenter.planned_size import plan_annotations, planned_guest
from moxwell.controllers.karpenter.proxmox.instance_record import machine_name
from moxwell.controllers.karpenter.proxmox.planned_capacity import (
    REPORT_SECONDS,
    PlannedCapacity,
    planned_guests,
)
from moxwell.runtime.key import Key
from moxwell.scheduling.guest_sizes import make_size
from moxwell.scheduling.host_room import HostedGuest
from moxwell.scheduling.inventory_model import GIB, HostKey, PendingGuest
from moxwell.scheduling.numa.guests import GuestCpuUse
from moxwell.scheduling.packing.host_ledger import HostSlot
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.testing.node_claims import claim_object

CLUSTER, OTHER = Key("default", "c"), Key("default", "d")
HOST = HostKey("north", "pve1")
SIZE = make_size(4, 8 * GIB, "c1", disk_gib=30)
SLOT = HostSlot("default", 0, HOST, 0.1, HostedGuest(SIZE, GuestCpuUse(4, 8192)))
GUEST = PendingGuest(HOST, 4, 8 * GIB, "ceph", 30 * GIB, GuestCpuUse(4, 8192))


def claim(name: str, **meta: Any) -> NodeClaim:
    given = {"uid": f"uid-{name}", "annotations": plan_annotations(SLOT)} | meta
    return msgspec.convert(claim_object(name, metadata=given), NodeClaim)


def test_the_plan_of_a_claim_is_read_back_as_used_capacity() -> None:
    assert planned_guest(claim("a"), "ceph") == GUEST
    assert planned_guest(claim("a", annotations={})) is None
    broken = plan_annotations(SLOT) | {PLANNED_SIZE: "large"}
    assert planned_guest(claim("a", annotations=broken)) is None


def test_claims_with_a_machine_or_that_end_do_not_count() -> None:
    ends = claim("b", deletionTimestamp="2026-01-01T00:00:00Z")
    known = [claim("a"), ends, claim("c")]
    made = f"default/{machine_name('c', 'c', 'uid-c')}"
    assert planned_guests(CLUSTER, known, {made}, "ceph") == (GUEST,)
    assert len(planned_guests(CLUSTER, known, set(), "ceph")) == 2


def test_clusters_see_each_others_plans_until_they_are_old() -> None:
    async def story() -> None:
        capacity, other = PlannedCapacity(LoopClock()), replace(GUEST, cpus=2)
        assert capacity.report(CLUSTER, [GUEST]) == (GUEST,)
        assert capacity.report(OTHER, [other]) == (GUEST, other)
        assert capacity.report(CLUSTER, []) == (other,)
        await asyncio.sleep(REPORT_SECONDS)
        assert capacity.report(CLUSTER, []) == ()

    run_virtual(story())
