"""EndpointSlices: which pods are behind a Service, with which ports."""

from typing import Any

import pytest

from moxwell.embedded.controllermanager.endpointslice.controller import selects
from moxwell.embedded.controllermanager.endpointslice.plan import (
    ServicePods,
    next_move,
    slices,
)
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Create, Delete, Merge, Writes

Json = dict[str, Any]


def service(**spec: Any) -> Json:
    meta = {"name": "web", "namespace": "d", "uid": "s"}
    body = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}], **spec}
    return {"metadata": meta, "spec": body}


def pod(name: str, *ips: str, ready: bool = True, phase: str = "Running", **more: Any) -> Json:
    ports = more.pop("ports", [])
    extra = {"deletionTimestamp": "x"} if more.pop("gone", False) else {}
    return {
        "metadata": {"name": name, "namespace": "d", "uid": f"u-{name}", **extra},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "ports": ports}]},
        "status": {
            "phase": phase,
            "podIPs": [{"ip": ip} for ip in ips],
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }


def conditions(made: Json) -> list[tuple[str, bool, bool, bool]]:
    return [
        (
            e["targetRef"]["name"],
            e["conditions"]["ready"],
            e["conditions"]["serving"],
            e["conditions"]["terminating"],
        )
        for e in made["endpoints"]
    ]


def seen(*pods: Json, slices: tuple[Json, ...] = ()) -> ServicePods:
    return ServicePods(pods, slices, {"n1": "rack-a"})


def test_endpoints_are_the_pods_with_an_address() -> None:
    pods = (
        pod("b", "10.0.0.2", ready=False),
        pod("a", "10.0.0.1"),
        pod("going", "10.0.0.3", gone=True),
        pod("pending", phase="Pending"),
        pod("done", "10.0.0.4", phase="Succeeded"),
    )
    (made,) = slices(service(), seen(*pods))
    assert conditions(made) == [
        ("a", True, True, False),
        ("b", False, False, False),
        ("going", False, True, True),
    ]
    assert made["ports"] == [{"name": "", "port": 8080, "protocol": "TCP"}]
    assert made["endpoints"][0]["zone"] == "rack-a"
    assert made["metadata"]["labels"]["kubernetes.io/service-name"] == "web"


def test_addresses_that_are_not_ready_are_published_on_request() -> None:
    (made,) = slices(
        service(publishNotReadyAddresses=True), seen(pod("a", "10.0.0.1", ready=False))
    )
    assert conditions(made) == [("a", True, False, False)]


@pytest.mark.parametrize(
    "spec",
    [{"selector": None}, {"selector": {}}, {"type": "ExternalName", "externalName": "x.y"}],
    ids=["no selector", "an empty selector", "an external name"],
)
def test_services_of_other_people_have_no_slices(spec: Json) -> None:
    assert list(slices(service(**spec), seen(pod("a", "10.0.0.1")))) == []


def test_named_ports_are_those_of_each_pod() -> None:
    port = {"name": "http", "port": 80, "targetPort": "web"}
    old = pod("old", "10.0.0.1", ports=[{"name": "web", "containerPort": 8080}])
    new = pod("new", "10.0.0.2", ports=[{"name": "web", "containerPort": 9090}])
    none = pod("none", "10.0.0.3")
    found = {
        tuple(p["port"] for p in s["ports"]): [e["targetRef"]["name"] for e in s["endpoints"]]
        for s in slices(service(ports=[port]), seen(old, new, none))
    }
    assert found == {(8080,): ["old"], (9090,): ["new"], (): ["none"]}


def test_families_and_hundreds_have_slices_of_their_own() -> None:
    pods = [pod(f"p{n:03}", f"10.0.1.{n}", f"fd00::{n}") for n in range(1, 151)]
    made = list(slices(service(ipFamilies=["IPv4", "IPv6"]), seen(*pods)))
    assert [(s["addressType"], len(s["endpoints"])) for s in made] == [
        ("IPv4", 100), ("IPv4", 50), ("IPv6", 100), ("IPv6", 50),
    ]  # fmt: skip
    assert len({s["metadata"]["name"] for s in made}) == 4


def test_only_differences_are_written() -> None:
    (made,) = slices(service(), seen(pod("a", "10.0.0.1")))
    stored = {**made, "metadata": {**made["metadata"], "uid": "e"}}
    assert next_move(service(), seen(pod("a", "10.0.0.1"), slices=(stored,))) == Done()
    created = next_move(service(), seen(pod("a", "10.0.0.1")))
    assert isinstance(created, Writes)
    assert [type(w) for w in created.writes] == [Create]
    changed = next_move(service(), seen(slices=(stored,)))
    assert isinstance(changed, Writes)
    (write,) = changed.writes
    assert isinstance(write, Merge)
    assert write.change == {"endpoints": [], "ports": []}
    deleted = next_move(service(selector=None), seen(slices=(stored,)))
    assert isinstance(deleted, Writes)
    assert [type(w) for w in deleted.writes] == [Delete]


def test_a_selector_needs_every_label() -> None:
    labelled = {"metadata": {"labels": {"app": "web", "tier": "x"}}}
    assert selects({"app": "web"}, labelled)
    assert not selects({"app": "web", "tier": "y"}, labelled)
    assert not selects({"app": "web"}, {"metadata": {}})
