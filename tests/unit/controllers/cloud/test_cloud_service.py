"""Tables of load balancer addresses."""

from typing import Any

import pytest

from moxwell.api.core.nodes import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from moxwell.api.infra.address_ranges import parse_address_ranges
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.cloud.features import LoadBalancerFeatures
from moxwell.controllers.cloud.service import allocation
from moxwell.controllers.cloud.service.allocation import AddressAllocation
from moxwell.controllers.cloud.service.ipam import AvailableAddresses, usable
from moxwell.controllers.cloud.service.plan import (
    AssignAddresses,
    KeepAddresses,
    ObservedService,
    ReleaseServiceAddresses,
    StopManaging,
    plan_service,
)
from moxwell.pve.endpoints.sdn import SdnSubnet
from moxwell.runtime.move import Done, Wait
from moxwell.scheduling import addresses

POOL = LoadBalancerFeatures(mode="ipam", pool=("10.0.0.10-10.0.0.11",), announcer="metallb")
FREE = AvailableAddresses(parse_address_ranges(POOL.pool))


def service(name: str, port: int = 80, given: str = "", **notes: str) -> dict[str, Any]:
    marks = {allocation.ALLOCATED: given} if given else {}
    known = {"share": allocation.SHARING_KEY, "requested": allocation.REQUESTED_ADDRESS}
    marks |= {known[k]: v for k, v in notes.items()}
    spec = {"type": "LoadBalancer", "loadBalancerClass": POOL.class_, "ports": [{"port": port}]}
    return {"metadata": {"name": name, "uid": name, "annotations": marks}, "spec": spec}


@pytest.mark.parametrize(
    "asked, others, answer",
    [
        pytest.param(service("a"), [], ("10.0.0.10", ""), id="the first"),
        pytest.param(
            service("b"), [service("a", given="10.0.0.10")], ("10.0.0.11", ""), id="the next"
        ),
        pytest.param(
            service("c", 443, share="k"),
            [service("a", 80, "10.0.0.10", share="k")],
            ("10.0.0.10", ""),
            id="shared with other ports",
        ),
        pytest.param(
            service("c", 80, share="k"),
            [service("a", 80, "10.0.0.10", share="k")],
            ("10.0.0.11", ""),
            id="not shared where ports clash",
        ),
        pytest.param(
            service("a", requested="10.0.0.11"), [], ("10.0.0.11", ""), id="the one asked for"
        ),
    ],
)
def test_choose(asked: Any, others: Any, answer: tuple[str, str]) -> None:
    found, why = allocation.choose_address(asked, 4, others, FREE)
    assert (found.address if found else "", why) == answer


@pytest.mark.parametrize(
    "asked, others, says",
    [
        pytest.param(service("a", requested="10.9.9.9"), [], "not in the pool", id="outside"),
        pytest.param(service("a", requested="soon"), [], "not in the pool", id="no address"),
        pytest.param(
            service("a", requested="fd00::1"), [], "not of an IP family", id="of another family"
        ),
        pytest.param(
            service("b", requested="10.0.0.10"),
            [service("a", given="10.0.0.10")],
            "is taken",
            id="taken",
        ),
        pytest.param(
            service("c"),
            [service("a", given="10.0.0.10"), service("b", given="10.0.0.11")],
            "no free IPv4 address",
            id="exhausted",
        ),
    ],
)
def test_why_not(asked: Any, others: Any, says: str) -> None:
    found, why = allocation.choose_address(asked, 4, others, FREE)
    assert found is None
    assert says in why


def test_the_annotation_of_the_announcer_is_written() -> None:
    change = allocation.annotation_patch(
        service("a"), [AddressAllocation("10.0.0.10", "m"), AddressAllocation("fd00::1", "m")], POOL
    )
    notes = change["metadata"]["annotations"]
    assert notes["metallb.io/loadBalancerIPs"] == "10.0.0.10,fd00::1"


def test_only_our_class_is_managed() -> None:
    other = service("a")
    other["spec"]["loadBalancerClass"] = "other"
    assert allocation.has_our_class(service("a"), POOL)
    assert not allocation.has_our_class(other, POOL)


def test_the_mac_of_a_service_is_stable() -> None:
    assert allocation.mac_of("u") == allocation.mac_of("u")
    assert allocation.mac_of("u").startswith("02:")


def test_other_services_are_not_managed() -> None:
    other = service("a")
    other["spec"]["type"] = "ClusterIP"
    assert not allocation.is_managed(other, POOL)
    assert allocation.is_managed(service("a", given="10.0.0.10") | {"spec": other["spec"]}, POOL)


def test_an_address_reserved_before_a_crash_is_used() -> None:
    mac = allocation.mac_of("a")
    free = AvailableAddresses(FREE.ranges, frozenset({"10.0.0.11"}), ((mac, "10.0.0.11"),))
    assert allocation.choose_address(service("a"), 4, [], free) == (
        AddressAllocation("10.0.0.11", mac),
        "",
    )


DUAL = AvailableAddresses(parse_address_ranges(["10.0.0.1", "fd00::1", "fd00::2"]))


def dual(name: str, *families: str, policy: str = "", **more: Any) -> dict[str, Any]:
    made = service(name, **more)
    made["spec"] |= {"ipFamilies": list(families)} if families else {}
    made["spec"] |= {"ipFamilyPolicy": policy} if policy else {}
    return made


@pytest.mark.parametrize(
    "asked, versions",
    [
        pytest.param(dual("a"), (4,), id="who says nothing gets IPv4"),
        pytest.param(dual("a", "IPv6"), (6,), id="IPv6 alone"),
        pytest.param(dual("a", "IPv6", "IPv4"), (6, 4), id="both, in the order asked for"),
        pytest.param(
            dual("a", "IPv4", policy="PreferDualStack"), (4,), id="the cluster has one only"
        ),
        pytest.param(dual("a", policy="RequireDualStack"), (4, 6), id="by policy alone"),
    ],
)
def test_families(asked: Any, versions: tuple[int, ...]) -> None:
    assert allocation.families(asked) == versions


@pytest.mark.parametrize(
    "asked, others, answer",
    [
        pytest.param(dual("a", "IPv4", "IPv6"), [], ("10.0.0.1", "fd00::1"), id="one of each"),
        pytest.param(
            dual("a", "IPv4", "IPv6", requested="fd00::2"),
            [],
            ("10.0.0.1", "fd00::2"),
            id="one requested",
        ),
        pytest.param(
            dual("a", "IPv4", "IPv6", requested="fd00::2, 10.0.0.1"),
            [],
            ("10.0.0.1", "fd00::2"),
            id="both requested, in any order",
        ),
        pytest.param(
            dual("b", "IPv4", "IPv6", port=443, share="k"),
            [dual("a", "IPv4", "IPv6", given="10.0.0.1,fd00::2", share="k")],
            ("10.0.0.1", "fd00::2"),
            id="both shared",
        ),
        pytest.param(
            dual("b", "IPv4", "IPv6", port=443, share="k"),
            [dual("a", given="10.0.0.1", share="k")],
            ("10.0.0.1", "fd00::1"),
            id="one shared and one alone",
        ),
        pytest.param(
            dual("b", "IPv4", "IPv6"),
            [dual("a", given="10.0.0.1,fd00::1")],
            ("", "fd00::2"),
            id="one of two is exhausted",
        ),
    ],
)
def test_an_address_of_each_family(asked: Any, others: Any, answer: tuple[str, ...]) -> None:
    found = [allocation.choose_address(asked, version, others, DUAL)[0] for version in (4, 6)]
    assert tuple(g.address if g else "" for g in found) == answer


@pytest.mark.parametrize(
    "policy, pool, missed",
    [
        pytest.param("PreferDualStack", "10.0.0.1", False, id="a preference that cannot be met"),
        pytest.param("PreferDualStack", "fd00::1", True, id="a preference that could be met"),
        pytest.param("RequireDualStack", "10.0.0.1", True, id="a requirement"),
        pytest.param("SingleStack", "10.0.0.1", True, id="the only one"),
    ],
)
def test_which_missing_family_is_a_failure(policy: str, pool: str, missed: bool) -> None:
    asked = dual("a", policy=policy)
    assert (
        allocation.is_required(asked, 6, AvailableAddresses(parse_address_ranges([pool]))) is missed
    )


OWN = allocation.mac_of("a")


@pytest.mark.parametrize(
    "macs, answer",
    [
        pytest.param("", (OWN, OWN), id="none noted"),
        pytest.param("02:01", ("02:01", OWN), id="one noted, before there were two"),
        pytest.param("02:01,02:02", ("02:01", "02:02"), id="one each"),
        pytest.param("02:01,02:02,02:03", ("02:01", "02:02"), id="one too many"),
        pytest.param("BC:24:11:00:00:01", (OWN, OWN), id="forged: a guest's"),
    ],
)
def test_each_address_has_its_mac(macs: str, answer: tuple[str, str]) -> None:
    bears = service("a", given="10.0.0.10,fd00::1")
    bears["metadata"]["annotations"] |= {allocation.MAC: macs} if macs else {}
    assert tuple(g.mac for g in allocation.allocations(bears)) == answer


@pytest.mark.parametrize(
    "bears, others, right",
    [
        pytest.param(service("b", given="10.0.0.10"), [], True, id="its own"),
        pytest.param(service("b", given="10.9.9.9"), [], False, id="forged, outside the pool"),
        pytest.param(service("b", given="nonsense"), [], False, id="forged, no address"),
        pytest.param(
            service("b", given="10.0.0.10"),
            [service("a", given="10.0.0.10")],
            False,
            id="forged, an older one has it",
        ),
        pytest.param(
            service("b", 443, "10.0.0.10", share="k"),
            [service("a", 80, "10.0.0.10", share="k")],
            True,
            id="shared",
        ),
    ],
)
def test_an_annotation_alone_gives_no_right(bears: Any, others: Any, right: bool) -> None:
    assert (
        allocation.owns_address(bears, allocation.allocated_addresses(bears)[0], others, FREE)
        is right
    )


@pytest.mark.parametrize(
    "subnet, first, last",
    [
        pytest.param(
            SdnSubnet(subnet="z", cidr="10.5.0.0/29"), "10.5.0.1", 6, id="without its ends"
        ),
        pytest.param(
            SdnSubnet(subnet="z", cidr="10.5.0.0/29", gateway="10.5.0.1"),
            "10.5.0.2",
            5,
            id="without its gateway",
        ),
        pytest.param(
            SdnSubnet(
                subnet="z",
                cidr="10.5.0.0/29",
                gateway="10.5.0.1",
                dhcp_range=({"start-address": "10.5.0.2", "end-address": "10.5.0.4"},),
            ),
            "10.5.0.5",
            2,
            id="without what DHCP hands out",
        ),
        pytest.param(
            SdnSubnet(
                subnet="z",
                cidr="10.5.0.0/29",
                dhcp_range=("start-address=10.5.0.1,end-address=10.5.0.5",),
            ),
            "10.5.0.6",
            1,
            id="a range as a property string",
        ),
    ],
)
def test_usable(subnet: SdnSubnet, first: str, last: int) -> None:
    found = list(addresses.usable(usable(subnet)))
    assert (found[0], len(found)) == (first, last)


def node(*taints: str, ready: bool = True, label: str = "") -> Node:
    return Node(
        metadata=ObjectMeta(name="n", labels={label: ""} if label else {}),
        spec=NodeSpec(taints=tuple(Taint(key=t, effect="NoSchedule") for t in taints)),
        status=NodeStatus(
            conditions=(NodeCondition(type="Ready", status="True" if ready else "False"),)
        ),
    )


@pytest.mark.parametrize(
    "subject, carries",
    [
        pytest.param(node(), True, id="a plain node"),
        pytest.param(node(ready=False), False, id="not ready"),
        pytest.param(node(label=allocation.EXCLUDED), False, id="excluded by label"),
        pytest.param(node(allocation.SCALE_DOWN_TAINT), False, id="about to be scaled away"),
    ],
)
def test_which_nodes_carry_load_balancers(subject: Node, carries: bool) -> None:
    assert allocation.may_carry_traffic(subject) is carries


# The plan

VNET = LoadBalancerFeatures(mode="ipam", vnet="vips", zone="lan")
IPAM = AvailableAddresses(FREE.ranges, region="north")


def in_namespace(tree: dict[str, Any], **meta: str) -> dict[str, Any]:
    return {**tree, "metadata": {**tree["metadata"], "namespace": "default", **meta}}


def reserved(*rows: AddressAllocation) -> AvailableAddresses:
    taken = frozenset(a.address for a in rows)
    return AvailableAddresses(
        FREE.ranges, taken, tuple((a.mac, a.address) for a in rows), region="north"
    )


FIRST = AddressAllocation("10.0.0.10", OWN)
LISTED = in_namespace(service("a", given="10.0.0.10"))
GONE = in_namespace(service("a", given="10.0.0.10"), deletionTimestamp="2026-01-01T00:00:00Z")
SHARER = service("b", 443, "10.0.0.10", share="k")
PLAIN = {**LISTED, "spec": {"type": "ClusterIP"}}
MOVES: dict[str, tuple[dict[str, Any], ObservedService, type, int, int]] = {
    "a new Service": (
        in_namespace(service("a")), ObservedService(available=IPAM), AssignAddresses, 1, 0,
    ),
    "reserved in an interrupted pass": (
        in_namespace(service("a")), ObservedService(available=reserved(FIRST)),
        AssignAddresses, 0, 0,
    ),
    "verified earlier": (LISTED, ObservedService(owned=(FIRST,)), KeepAddresses, 0, 0),
    "its reservation was lost": (
        LISTED, ObservedService(owned=(FIRST,), available=IPAM), KeepAddresses, 1, 0,
    ),
    "an exhausted pool": (
        in_namespace(service("a")),
        ObservedService(available=AvailableAddresses((), region="north")), Wait, 0, 0,
    ),
    "deleted": (GONE, ObservedService(available=reserved(FIRST)), ReleaseServiceAddresses, 0, 1),
    "deleted, but another shares its address": (
        GONE, ObservedService(available=reserved(FIRST), others=(SHARER,)), Done, 0, 0,
    ),
    "deleted and released": (GONE, ObservedService(available=IPAM), Done, 0, 0),
    "deleted, without IPAM": (GONE, ObservedService(available=FREE), Done, 0, 0),
    "of another class now": (
        PLAIN, ObservedService(owned=(FIRST,), available=reserved(FIRST)), StopManaging, 0, 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tree", "seen", "kind", "reserve", "release"), MOVES.values(), ids=MOVES)
def test_plan(
    tree: dict[str, Any], seen: ObservedService, kind: type, reserve: int, release: int
) -> None:
    move = plan_service(tree, seen, VNET)
    assert isinstance(move, kind)
    assert len(getattr(move, "reserve", ())) == reserve
    assert len(getattr(move, "release", ())) == release
