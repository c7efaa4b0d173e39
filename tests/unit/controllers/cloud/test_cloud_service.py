"""Addresses for Services: a table."""

from typing import Any

import pytest

from moxwell.api.core.nodes import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from moxwell.api.infra.address_ranges import parse_ranges
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.cloud.features import Balancer
from moxwell.controllers.cloud.service import plan
from moxwell.controllers.cloud.service.ipam import Free, usable
from moxwell.controllers.cloud.service.plan import Grant
from moxwell.pve.endpoints.sdn import Subnet
from moxwell.scheduling import addresses

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
    found, why = plan.choose(asked, 4, others, FREE)
    assert (found.address if found else "", why) == answer


@pytest.mark.parametrize(
    "asked, others, says",
    [
        pytest.param(service("a", wish="10.9.9.9"), [], "not in the pool", id="outside"),
        pytest.param(service("a", wish="soon"), [], "not in the pool", id="no address"),
        pytest.param(service("a", wish="fd00::1"), [], "of no IP family", id="of another family"),
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
    found, why = plan.choose(asked, 4, others, FREE)
    assert found is None
    assert says in why


def test_the_announcer_is_told_in_its_own_words() -> None:
    change = plan.change(service("a"), [Grant("10.0.0.10", "m"), Grant("fd00::1", "m")], POOL)
    notes = change["metadata"]["annotations"]
    assert notes["metallb.io/loadBalancerIPs"] == "10.0.0.10,fd00::1"


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
    assert plan.choose(service("a"), 4, [], free) == (Grant("10.0.0.11", mac), "")


DUAL = Free(parse_ranges(["10.0.0.1", "fd00::1", "fd00::2"]))


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
    assert plan.families(asked) == versions


@pytest.mark.parametrize(
    "asked, others, answer",
    [
        pytest.param(dual("a", "IPv4", "IPv6"), [], ("10.0.0.1", "fd00::1"), id="one of each"),
        pytest.param(
            dual("a", "IPv4", "IPv6", wish="fd00::2"), [], ("10.0.0.1", "fd00::2"), id="one wished"
        ),
        pytest.param(
            dual("a", "IPv4", "IPv6", wish="fd00::2, 10.0.0.1"),
            [],
            ("10.0.0.1", "fd00::2"),
            id="both wished, in any order",
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
    found = [plan.choose(asked, version, others, DUAL)[0] for version in (4, 6)]
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
def test_who_is_told_of_a_missing_family(policy: str, pool: str, missed: bool) -> None:
    asked = dual("a", policy=policy)
    assert plan.is_missed(asked, 6, Free(parse_ranges([pool]))) is missed


OWN = plan.mac_of("a")


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
    bears["metadata"]["annotations"] |= {plan.MAC: macs} if macs else {}
    assert tuple(g.mac for g in plan.grants(bears)) == answer


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
    assert plan.has_right(bears, plan.given(bears)[0], others, FREE) is right


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
