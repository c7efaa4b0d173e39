"""Addresses for Services: a table."""

from typing import Any

import pytest

from moxwell.controllers.cloud.balancer import plan
from moxwell.controllers.cloud.settings import Balancer

POOL = Balancer(mode="ipam", pool=("10.0.0.10-10.0.0.11",), announcer="metallb")


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
    assert plan.choose(asked, others, POOL) == answer


@pytest.mark.parametrize(
    "asked, others, says",
    [
        pytest.param(service("a", wish="10.9.9.9"), [], "not in the pool", id="outside"),
        pytest.param(
            service("b", wish="10.0.0.10"), [service("a", given="10.0.0.10")], "another", id="taken"
        ),
        pytest.param(
            service("c"),
            [service("a", given="10.0.0.10"), service("b", given="10.0.0.11")],
            "no free address",
            id="exhausted",
        ),
    ],
)
def test_why_not(asked: Any, others: Any, says: str) -> None:
    address, why = plan.choose(asked, others, POOL)
    assert address == ""
    assert says in why


def test_the_announcer_is_told_in_its_own_words() -> None:
    change = plan.change(service("a"), "10.0.0.10", POOL)
    assert change["metadata"]["annotations"]["metallb.io/loadBalancerIPs"] == "10.0.0.10"


def test_only_our_class_is_ours() -> None:
    other = service("a")
    other["spec"]["loadBalancerClass"] = "other"
    assert plan.is_ours(service("a"), POOL)
    assert not plan.is_ours(other, POOL)


def test_a_service_has_one_mac_for_life() -> None:
    assert plan.mac_of("u") == plan.mac_of("u")
    assert plan.mac_of("u").startswith("02:")
