"""Addresses for Services: a table."""

from typing import Any

import pytest

from moxwell.api.core.nodes import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from moxwell.api.infra.ranges import parse_ranges
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.cloud.balancer import plan
from moxwell.controllers.cloud.balancer.ipam import Free, usable
from moxwell.controllers.cloud.settings import Balancer
from moxwell.kernel import addresses
from moxwell.pve.endpoints.sdn import Subnet

POOL = Balancer(mode="ipam", pool=("10.0.0.10-10.0.0.11",), announcer="metallb")
FREE = Free(parse_ranges(POOL.pool))


def service(name: str, port: int = 80, given: str = "", **notes: str) -> dict[str, Any]:
    marks = {plan.GIVEN: given} if given else {}
    known = {"share": plan.SHARE, "wish": plan.WISH}
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
        pytest.param(service("a", wish="10.0.0.11"), [], ("10.0.0.11", ""), id="the one asked for"),
    ],
)
def test_choose(asked: Any, others: Any, answer: tuple[str, str]) -> None:
    address, _, why = plan.choose(asked, others, FREE)
    assert (address, why) == answer


@pytest.mark.parametrize(
    "asked, others, says",
    [
        pytest.param(service("a", wish="10.9.9.9"), [], "not in the pool", id="outside"),
        pytest.param(
            service("b", wish="10.0.0.10"),
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
    address, _, why = plan.choose(asked, others, FREE)
    assert address == ""
    assert says in why


def test_the_announcer_is_told_in_its_own_words() -> None:
    change = plan.change(service("a"), "10.0.0.10", "", POOL)
    assert change["metadata"]["annotations"]["metallb.io/loadBalancerIPs"] == "10.0.0.10"


def test_only_our_class_is_ours() -> None:
    other = service("a")
    other["spec"]["loadBalancerClass"] = "other"
    assert plan.is_ours(service("a"), POOL)
    assert not plan.is_ours(other, POOL)


def test_a_service_has_one_mac_for_life() -> None:
    assert plan.mac_of("u") == plan.mac_of("u")
    assert plan.mac_of("u").startswith("02:")


def test_no_other_service_is_any_of_our_business() -> None:
    other = service("a")
    other["spec"]["type"] = "ClusterIP"
    assert not plan.concerns(other, POOL)
    assert plan.concerns(service("a", given="10.0.0.10") | {"spec": other["spec"]}, POOL)


def test_an_address_reserved_before_a_crash_is_used() -> None:
    mac = plan.mac_of("a")
    free = Free(FREE.ranges, frozenset({"10.0.0.11"}), ((mac, "10.0.0.11"),))
    assert plan.choose(service("a"), [], free) == ("10.0.0.11", mac, "")


def test_the_family_is_the_services() -> None:
    free = Free(parse_ranges(["10.0.0.1", "fd00::1"]))
    six = service("a")
    six["spec"]["ipFamilies"] = ["IPv6"]
    assert plan.choose(six, [], free)[0] == "fd00::1"


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
def test_a_note_alone_gives_no_right(bears: Any, others: Any, right: bool) -> None:
    assert plan.has_right(bears, others, FREE) is right


@pytest.mark.parametrize(
    "subnet, first, last",
    [
        pytest.param(Subnet(subnet="z", cidr="10.5.0.0/29"), "10.5.0.1", 6, id="without its ends"),
        pytest.param(
            Subnet(subnet="z", cidr="10.5.0.0/29", gateway="10.5.0.1"),
            "10.5.0.2",
            5,
            id="without its gateway",
        ),
        pytest.param(
            Subnet(
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
            Subnet(
                subnet="z",
                cidr="10.5.0.0/29",
                dhcp_range=("start-address=10.5.0.1,end-address=10.5.0.5",),
            ),
            "10.5.0.6",
            1,
            id="a range told as a text",
        ),
    ],
)
def test_usable(subnet: Subnet, first: str, last: int) -> None:
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
        pytest.param(node(label=plan.EXCLUDED), False, id="excluded by label"),
        pytest.param(node(plan.LEAVING), False, id="about to be scaled away"),
    ],
)
def test_which_nodes_carry_load_balancers(subject: Node, carries: bool) -> None:
    assert plan.carries(subject) is carries
