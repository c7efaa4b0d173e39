"""Load balancer addresses are assigned, shared and released; on virtual time."""

from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from moxwell.api.kinds import Resource
from moxwell.controllers.cloud.features import LoadBalancerFeatures
from moxwell.controllers.cloud.service.ipam import VnetPool
from moxwell.errors import Invalid
from moxwell.lab.proxmox.state import SimAcl
from moxwell.testing.cloud import CloudEnvironment, world
from moxwell.testing.loop import run_virtual

SERVICES = Resource("", "v1", "services", "Service")
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"


def story(tell: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(tell())


SHARED = {"moxwell.dev/lb-sharing-key": "k"}
SDN = {"mode": "ipam", "vnet": "vips", "zone": "lan", "announcer": "metallb"}


async def make_vnet(w: CloudEnvironment, **zone: str) -> None:
    for path in ("/", "/sdn", "/sdn/zones"):
        w.stage.region.access.acl.append(SimAcl(path, "user", "moxwell@pve", "Administrator"))
    sdn, options = w.stage.pve.sdn, zone or {"ipam": "pve", "dhcp": "dnsmasq"}
    asked = {"zone": "lan", "type": "simple", **options}
    await w.stage.transport.request("POST", "/cluster/sdn/zones", asked)
    await sdn.create_vnet("vips", "lan")
    await sdn.create_subnet("vips", "10.7.0.0/29", gateway="10.7.0.1")
    await sdn.create_subnet("vips", "fd07::/64", gateway="fd07::1")
    await w.stage.settle(await sdn.apply())


async def serve(
    w: CloudEnvironment,
    name: str,
    port: int = 80,
    notes: Mapping[str, str] = MappingProxyType({}),
    **more: Any,
) -> None:
    spec = {
        "type": "LoadBalancer",
        "loadBalancerClass": "moxwell.dev/ipam",
        "selector": {"app": name},
        "ports": [{"port": port}],
        **more,
    }
    meta = {"name": name, "namespace": "default", "annotations": dict(notes)}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}
    await w.kube.create(body, SERVICES)


async def address(w: CloudEnvironment, name: str) -> str:
    found = await w.kube.get(SERVICES, name, "default")
    rows = (found.get("status") or {}).get("loadBalancer", {}).get("ingress") or [{}]
    return str(rows[0].get("ip", ""))


async def addresses(w: CloudEnvironment, name: str) -> list[str]:
    found = await w.kube.get(SERVICES, name, "default")
    rows = (found.get("status") or {}).get("loadBalancer", {}).get("ingress") or []
    return [row["ip"] for row in rows]


async def reserved(w: CloudEnvironment) -> set[str]:
    return {x.ip for x in await w.stage.pve.sdn.leases("pve") if x.mac.startswith("02:")}


def test_addresses_are_reserved_in_the_ipam_of_a_vnet_and_released() -> None:
    async def tell() -> None:
        async with world(load_balancer=SDN) as w:
            await make_vnet(w)
            await w.stage.pve.sdn.reserve(
                "vips", zone="lan", ip="10.7.0.2", mac="BC:24:11:00:00:01"
            )
            await serve(w, "web")
            assert await w.until(lambda: address(w, "web")) == "10.7.0.3"
            assert await reserved(w) == {"10.7.0.3"}
            await w.kube.delete(SERVICES, "web", "default")

            async def returned() -> bool:
                return not await reserved(w)

            await w.until(returned)

    story(tell)


def test_a_zone_without_dhcp_is_refused_because_its_reservations_are_hidden() -> None:
    async def tell() -> None:
        async with world(load_balancer=SDN) as w:
            await make_vnet(w, ipam="pve")
            pool = VnetPool(w.regions, LoadBalancerFeatures(vnet="vips", zone="lan"))
            with pytest.raises(Invalid, match="zone lan, which has no DHCP: set its DHCP"):
                await pool.read()

    story(tell)


def test_a_shared_address_is_released_with_its_last_service() -> None:
    async def tell() -> None:
        async with world(load_balancer=SDN) as w:
            await make_vnet(w)
            await serve(w, "web", 80, SHARED)
            await w.until(lambda: address(w, "web"))
            await serve(w, "dns", 53, SHARED)
            assert await w.until(lambda: address(w, "dns")) == await address(w, "web")
            await w.kube.delete(SERVICES, "web", "default")
            await w.stage.clock.sleep(60)
            assert await reserved(w) == {"10.7.0.2"}
            await w.kube.delete(SERVICES, "dns", "default")
            await w.stage.clock.sleep(60)
            assert await reserved(w) == set()

    story(tell)


BOTH: dict[str, Any] = {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}
ONE: dict[str, Any] = {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"}


def test_a_dual_stack_service_has_an_address_of_each_family_from_the_ipam() -> None:
    async def tell() -> None:
        async with world(load_balancer=SDN) as w:
            await make_vnet(w)
            await serve(w, "web", **BOTH)
            assert await w.until(lambda: addresses(w, "web")) == ["10.7.0.2", "fd07::2"]
            notes = (await w.kube.get(SERVICES, "web", "default"))["metadata"]["annotations"]
            assert notes["metallb.io/loadBalancerIPs"] == "10.7.0.2,fd07::2"
            assert await reserved(w) == {"10.7.0.2", "fd07::2"}
            await w.kube.merge(SERVICES, "web", {"spec": ONE}, "default")
            await w.stage.clock.sleep(60)
            assert await addresses(w, "web") == ["10.7.0.2"]
            assert await reserved(w) == {"10.7.0.2"}
            await w.kube.merge(SERVICES, "web", {"spec": BOTH}, "default")
            await w.stage.clock.sleep(60)
            assert await addresses(w, "web") == ["10.7.0.2", "fd07::2"]
            await w.kube.delete(SERVICES, "web", "default")
            await w.stage.clock.sleep(60)
            assert await reserved(w) == set()

    story(tell)


def test_each_of_two_addresses_is_released_with_its_last_service() -> None:
    async def tell() -> None:
        async with world(load_balancer=SDN) as w:
            await make_vnet(w)
            await serve(w, "web", 80, SHARED)
            await w.until(lambda: addresses(w, "web"))
            await serve(w, "dns", 53, SHARED, **BOTH)
            assert await w.until(lambda: addresses(w, "dns")) == ["10.7.0.2", "fd07::2"]
            await w.kube.delete(SERVICES, "web", "default")
            await w.stage.clock.sleep(60)
            assert await reserved(w) == {"10.7.0.2", "fd07::2"}
            await w.kube.delete(SERVICES, "dns", "default")
            await w.stage.clock.sleep(60)
            assert await reserved(w) == set()

    story(tell)


def test_dual_stack_from_a_pool_with_one_ipv6_address() -> None:
    async def tell() -> None:
        pool = {"mode": "ipam", "pool": "10.9.0.1-10.9.0.3,fd09::5"}
        async with world(load_balancer=pool) as w:
            await serve(w, "first", **BOTH)
            assert await w.until(lambda: addresses(w, "first")) == ["10.9.0.1", "fd09::5"]
            await serve(w, "strict", **BOTH)
            await serve(w, "easy", **BOTH | {"ipFamilyPolicy": "PreferDualStack"})
            assert await w.until(lambda: addresses(w, "easy")) == ["10.9.0.2"]
            await w.until(lambda: w.has_event("SyncLoadBalancerFailed"))
            await w.stage.clock.sleep(60)
            assert await addresses(w, "strict") == []
            await w.kube.delete(SERVICES, "easy", "default")
            await w.kube.delete(SERVICES, "first", "default")
            assert len(await w.until(lambda: addresses(w, "strict"))) == 2

    story(tell)


def test_a_forged_mac_does_not_release_the_address_of_a_guest() -> None:
    async def tell() -> None:
        async with world(load_balancer=SDN) as w:
            await make_vnet(w)
            lease = {"zone": "lan", "ip": "10.7.0.4", "mac": "BC:24:11:00:00:01"}
            await w.stage.pve.sdn.reserve("vips", **lease)
            forged = {
                "moxwell.dev/lb-allocated": "10.7.0.4",
                "moxwell.dev/lb-mac": "BC:24:11:00:00:01",
            }
            await serve(w, "thief", 80, forged)
            assert await w.until(lambda: addresses(w, "thief")) == ["10.7.0.2"]
            await w.kube.delete(SERVICES, "thief", "default")
            await w.stage.clock.sleep(60)
            leases = await w.stage.pve.sdn.leases("pve")
            assert "10.7.0.4" in {x.ip for x in leases}

    story(tell)


def test_a_service_that_is_no_load_balancer_any_more_loses_our_annotations() -> None:
    async def tell() -> None:
        async with world(load_balancer=SDN) as w:
            await make_vnet(w)
            await serve(w, "web")
            await w.until(lambda: address(w, "web"))
            change = {"spec": {"type": "ClusterIP", "loadBalancerClass": None}}
            await w.kube.merge(SERVICES, "web", change, "default")
            await w.stage.clock.sleep(60)
            meta = (await w.kube.get(SERVICES, "web", "default"))["metadata"]
            assert FINALIZER not in meta.get("finalizers", ())
            assert not meta.get("annotations")
            assert await reserved(w) == set()

    story(tell)


def test_other_services_are_not_touched() -> None:
    async def tell() -> None:
        async with world(load_balancer={"mode": "ipam", "pool": "10.9.0.1"}) as w:
            spec = {"ports": [{"port": 80}], "selector": {"app": "x"}}
            meta = {"name": "plain", "namespace": "default"}
            body = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}
            await w.kube.create(body, SERVICES)
            await w.stage.clock.sleep(60)
            found = await w.kube.get(SERVICES, "plain", "default")
            assert "finalizers" not in found["metadata"]

    story(tell)


def test_a_forged_annotation_takes_no_address_from_others() -> None:
    async def tell() -> None:
        async with world(load_balancer={"mode": "ipam", "pool": "10.9.0.1-10.9.0.2"}) as w:
            await serve(w, "web")
            await w.until(lambda: address(w, "web"))
            await w.stage.clock.sleep(2)
            await serve(w, "thief", 80, {"moxwell.dev/lb-allocated": "10.9.0.1"})
            assert await w.until(lambda: address(w, "thief")) == "10.9.0.2"

    story(tell)


def test_a_cluster_without_usable_nodes_is_reported() -> None:
    async def tell() -> None:
        async with world(load_balancer={"mode": "ipam", "pool": "10.9.0.1"}) as w:
            await serve(w, "web")
            await w.until(lambda: w.has_event("UnAvailableLoadBalancer"))

    story(tell)
