"""What a tenant has for itself in Proxmox 8.4 and 9.2, made with exactly the documented rights."""

import base64
from collections.abc import Callable
from typing import Any

import pytest

from moxwell.api.cozystack import Kubernetes, Tenant
from moxwell.controllers.tenancy.tenant.controller import TenantReconciler
from moxwell.controllers.tenancy.tenant.isolation import vnet_name
from moxwell.controllers.tenancy.tenant.plan import TenantChanges
from moxwell.controllers.tenancy.tenant.see_isolation import SECRETS
from moxwell.kube.errors import KubeForbidden
from moxwell.lab.proxmox.access.permissions import effective_permissions
from moxwell.lab.proxmox.state import SimAcl, SimGroup, SimPool, SimRegion, SimToken, SimUser
from moxwell.onboarding.access_plan import (
    AccessRequest,
    all_roles,
    chosen_features,
    role_name,
    wanted_roles,
)
from moxwell.pve.effects import Effects, PveWrite
from moxwell.pve.tenant_access import TENANT_GROUP, TENANT_USER
from moxwell.runtime.move import Done
from moxwell.testing.loop import run_virtual
from moxwell.testing.tenancy import TenantWorld, tenancy

SPACE = "tenant-red"
VNET = vnet_name(SPACE)
FULL: dict[str, Any] = {
    "proxmox": {"pool": True, "token": True},
    "network": {
        "vnet": {"zone": "tenants", "subnet": "10.9.0.0/24", "gateway": "10.9.0.1"},
        "ranges": ["10.9.0.10-10.9.0.99"],
        "allowFrom": ["10.9.0.0/24"],
        "rules": [{"from": ["0.0.0.0/0"], "ports": "80,443"}, {"protocol": "icmp"}],
    },
}


def tenant(**spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "apps.cozystack.io/v1alpha1", "kind": "Tenant"}
    return {**head, "metadata": {"name": "red", "namespace": "default"}, "spec": spec}


def cluster(**group: Any) -> dict[str, Any]:
    head = {"apiVersion": "apps.cozystack.io/v1alpha1", "kind": "Kubernetes"}
    groups = [{"name": "g", "replicas": 1, "regions": ["north"], **group}]
    return {**head, "metadata": {"name": "c1", "namespace": SPACE}, "spec": {"nodeGroups": groups}}


SIMPLE = {"type": "simple", "ipam": "pve"}
TAGGED_ZONES: dict[str, dict[str, Any]] = {
    "vlan": {"type": "vlan", "bridge": "vmbr0", "ipam": "pve"},
    "vxlan": {"type": "vxlan", "peers": "192.0.2.1,192.0.2.2", "ipam": "pve"},
    "evpn": {"type": "evpn", "controller": "evpn1", "vrf-vxlan": 10000, "ipam": "pve"},
}


def restrict(region: SimRegion, zone: dict[str, Any] = SIMPLE) -> None:
    """Leave Moxwell exactly what ``moxwell init`` grants, and a zone for tenants."""
    features = (*chosen_features(None), "tenants")
    request = AccessRequest(region.major, "moxwell@pve", "test", features)
    access = region.access
    access.roles |= {name: list(privs) for name, privs in all_roles(request).items()}
    access.acl[:] = [
        SimAcl(path, "user", "moxwell@pve", role_name(path), int(path not in ("/", "/sdn")))
        for path in wanted_roles(request)
    ]
    access.users[TENANT_USER] = SimUser(TENANT_USER)
    access.groups[TENANT_GROUP] = SimGroup(TENANT_GROUP, None, [TENANT_USER])
    if controller := zone.get("controller"):
        region.sdn.controllers[controller] = {"type": "evpn", "asn": 65000, "peers": "192.0.2.1"}
        region.sdn.running["controllers"] = {controller: dict(region.sdn.controllers[controller])}
    region.sdn.zones["tenants"] = dict(zone)
    region.sdn.running["zones"] = {"tenants": dict(region.sdn.zones["tenants"])}


async def start(w: TenantWorld, zone: dict[str, Any] = SIMPLE, **spec: Any) -> None:
    for name in ("north", "south"):
        restrict(w.two_regions.region(name), zone)
    await w.put(tenant(**spec))


async def settled(w: TenantWorld) -> bool:
    found = await w.kube.find(Tenant, "red", "default")
    ready = [c for c in found.status.conditions if c.type == "Ready"] if found else []
    complete = found is not None and found.status.observed_generation == found.metadata.generation
    return bool(ready) and ready[0].status == "True" and complete and not await owed(w)


async def owed(w: TenantWorld) -> bool:
    """Whether the controller still has something to do."""
    loop = TenantReconciler(w.kube, w.program.regions)
    obj = await w.kube.get(Tenant, "red", "default")
    return not isinstance(loop.plan(obj, await loop.see(obj, w.kube)), Done)


async def gone(w: TenantWorld) -> bool:
    return await w.kube.find(Tenant, "red", "default") is None


def remains(region: SimRegion) -> list[str]:
    """Everything in a region that names the tenant."""
    sdn, user = region.sdn, region.access.users[TENANT_USER]
    names = [*region.pools, *sdn.vnets, *sdn.subnets, *sdn.running.get("vnets", {}), *user.tokens]
    names += [*region.firewall.groups, *(a.path for a in region.access.acl if "mox-" in a.path)]
    return [name for name in names if "red" in name or VNET in name or "10.9" in name]


def test_a_tenant_has_pool_token_vnet_and_firewall_and_leaves_nothing() -> None:
    async def story() -> None:
        async with tenancy() as w:
            await start(w, **FULL)
            await w.until(lambda: settled(w))
            for name in ("north", "south"):
                region = w.two_regions.region(name)
                assert region.pools["mox-red"].comment == f"moxwell-tenant={SPACE}"
                running = region.sdn.running
                assert running["vnets"][VNET]["alias"] == f"moxwell-tenant={SPACE}"
                assert running["subnets"]["tenants-10.9.0.0-24"]["gateway"] == "10.9.0.1"
                rules = await w.program.regions[name].reader.firewall.group_rules("mox-red")
                assert {(r.source, r.proto, r.dport) for r in rules} == {
                    ("10.9.0.0/24", "", ""), ("0.0.0.0/0", "tcp", "80,443"), ("", "icmp", ""),
                }  # fmt: skip
                granted = effective_permissions(region, TENANT_USER, SPACE)
                assert {path for path, privs in granted.items() if privs} == {"/pool/mox-red"}
                secret = await w.kube.get(SECRETS, f"proxmox-{name}", SPACE)
                value = base64.b64decode(secret["data"]["secret"]).decode()
                assert value == region.access.users[TENANT_USER].tokens[SPACE].secret
            await w.put(cluster())
            found = await w.until(lambda: joined(w))
            assert found.conf["net0"].count(f"bridge={VNET}") == 1
            assert w.two_regions.region("north").pools["mox-red"].vms
            addresses = (await w.kube.get(Kubernetes, "c1", SPACE)).status
            assert addresses.ready_replicas == 1
            await w.kube.delete(Tenant, "red", "default")
            await w.until(lambda: gone(w), 1800)
            for name in ("north", "south"):
                assert remains(w.two_regions.region(name)) == []

    run_virtual(story())


@pytest.mark.parametrize("kind", TAGGED_ZONES)
def test_a_vnet_of_a_zone_with_tags_is_made_used_and_removed(kind: str) -> None:
    async def story() -> None:
        async with tenancy() as w:
            network = {**FULL["network"], "vnet": {**FULL["network"]["vnet"], "tag": 2042}}
            await start(w, TAGGED_ZONES[kind], network=network)
            await w.until(lambda: settled(w))
            for name in ("north", "south"):
                running = w.two_regions.region(name).sdn.running
                assert int(running["vnets"][VNET]["tag"]) == 2042
                assert running["subnets"]["tenants-10.9.0.0-24"]["vnet"] == VNET
            await w.put(cluster())
            found = await w.until(lambda: joined(w))
            assert found.conf["net0"].count(f"bridge={VNET}") == 1
            await w.kube.delete(Tenant, "red", "default")
            await w.until(lambda: gone(w), 1800)
            assert [remains(w.two_regions.region(name)) for name in ("north", "south")] == [[], []]

    run_virtual(story())


@pytest.mark.parametrize(
    ("zone", "changes", "expected"),
    [
        (TAGGED_ZONES["vlan"], {}, "spec.network.vnet.tag: a VNet of the vlan zone"),
        (TAGGED_ZONES["vlan"], {"tag": 4095}, "needs a tag from 1 to 4094"),
        (TAGGED_ZONES["vxlan"], {}, "needs a tag from 1 to 16777215"),
        (TAGGED_ZONES["evpn"], {}, "spec.network.vnet.tag: a VNet of the evpn zone"),
        (SIMPLE, {"tag": 7}, "spec.network.vnet.tag: remove it, tenants is a simple zone"),
        (SIMPLE, {"zone": "other"}, "has no SDN zone other that Moxwell may use (known: tenants)"),
    ],
)
def test_a_vnet_that_its_zone_refuses_names_the_field(
    zone: dict[str, Any], changes: dict[str, Any], expected: str
) -> None:
    async def story() -> None:
        async with tenancy() as w:
            network = {**FULL["network"], "vnet": {**FULL["network"]["vnet"], **changes}}
            await start(w, zone, network=network)
            assert expected in await w.until(lambda: complaint(w))
            assert VNET not in w.two_regions.region("north").sdn.vnets

    run_virtual(story())


async def complaint(w: TenantWorld) -> str:
    found = await w.kube.find(Tenant, "red", "default")
    ready = [c for c in found.status.conditions if c.type == "Ready"] if found else []
    return ready[0].message if ready and ready[0].status == "False" else ""


async def joined(w: TenantWorld) -> Any:
    found = await w.kube.find(Kubernetes, "c1", SPACE)
    if found is None or found.status.ready_replicas != 1:
        return None
    return next(iter(w.two_regions.guests("north").values()))


def test_what_is_taken_out_of_the_spec_is_removed() -> None:
    async def story() -> None:
        async with tenancy() as w:
            await start(w, **FULL)
            await w.until(lambda: settled(w))
            other = {**FULL["network"]["vnet"], "subnet": "10.9.8.0/24", "gateway": "10.9.8.1"}
            changed = {**FULL["network"], "vnet": other, "ranges": ["10.9.8.10-10.9.8.20"]}
            await w.put(tenant(proxmox={"pool": True}, network=changed))
            await w.until(lambda: settled(w))
            region = w.two_regions.region("south")
            assert list(region.sdn.running["subnets"]) == ["tenants-10.9.8.0-24"]
            assert region.access.users[TENANT_USER].tokens == {}
            await w.put(tenant(host="a"))
            await w.until(lambda: settled(w))
            left = [n for n in remains(region) if n not in region.firewall.groups]
            assert left == []

    run_virtual(story())


@pytest.mark.parametrize("kind", ["zone", "vnet"])
def test_pending_changes_of_other_people_are_not_applied(kind: str) -> None:
    async def story() -> None:
        async with tenancy() as w:
            sdn = w.two_regions.region("north").sdn
            restrict(w.two_regions.region("north"))
            if kind == "zone":
                sdn.zones["theirs"] = {"type": "simple"}
            else:
                sdn.vnets["theirs"] = {"type": "vnet", "zone": "tenants"}
            await start(w, **FULL)
            message = await w.until(lambda: refusal(w))
            assert "pending SDN changes of others in region north" in message
            assert "vnets" not in sdn.running
            (sdn.zones if kind == "zone" else sdn.vnets).pop("theirs")
            await w.until(lambda: settled(w))
            assert VNET in sdn.running["vnets"]

    run_virtual(story())


async def refusal(w: TenantWorld) -> str:
    found = await w.kube.get(Tenant, "red", "default")
    return next((c.message for c in found.status.conditions if c.status == "False"), "")


FOREIGN: dict[str, Callable[[SimRegion], object]] = {
    "pool mox-red": lambda r: r.pools.setdefault("mox-red", SimPool("mox-red", "theirs")),
    f"VNet {VNET}": lambda r: r.sdn.vnets.update({VNET: {"type": "vnet", "zone": "tenants"}}),
    f"token {TENANT_USER}!{SPACE}": lambda r: r.access.users[TENANT_USER].tokens.update(
        {SPACE: SimToken(SPACE, "theirs", comment="theirs")}
    ),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_what_belongs_to_others_is_not_touched(what: str) -> None:
    async def story() -> None:
        async with tenancy() as w:
            for name in ("north", "south"):
                restrict(w.two_regions.region(name))
            FOREIGN[what](w.two_regions.region("south"))
            before = str(w.two_regions.region("south").pools)
            await w.put(tenant(**FULL))
            message = await w.until(lambda: refusal(w))
            assert what in message
            assert "does not belong to this tenant" in message
            assert str(w.two_regions.region("south").pools) == before

    run_virtual(story())


def test_missing_privileges_name_the_feature() -> None:
    async def story() -> None:
        async with tenancy() as w:
            await start(w)
            region = w.two_regions.region("north")
            region.access.acl[:] = [a for a in region.access.acl if "groups" not in a.path]
            await w.put(tenant(**FULL))
            message = await w.until(lambda: refusal(w))
            assert "--feature tenants" in message

    run_virtual(story())


GROUPS = [({"bridge": "vmbr0"}, "bridge vmbr0"), ({"vlan": 7}, "VLAN 7")]


@pytest.mark.parametrize(("group", "words"), GROUPS)
def test_a_node_group_cannot_name_another_network(group: dict[str, Any], words: str) -> None:
    async def story() -> None:
        async with tenancy() as w:
            await start(w, **FULL)
            await w.until(lambda: settled(w))
            with pytest.raises(KubeForbidden, match=f"the tenant may not use the {words}"):
                await w.put(cluster(**group))

    run_virtual(story())


class Killed(Exception):
    """The process ends here."""


class KillAfter(Effects):
    """Ends the process after some writes."""

    def __init__(self, writes: int) -> None:
        super().__init__()
        self.left = writes

    async def send(self, write: PveWrite, transmit: Any) -> bytes:
        if self.left == 0:
            raise Killed
        self.left -= 1
        answer = await super().send(write, transmit)
        if self.left == 0:
            raise Killed  # the write happened, its answer is lost
        return answer


async def kill_everywhere(w: TenantWorld) -> int:
    """
    Kill every pass after its first write until nothing is due; returns the number of kills.

    A token whose secret was lost is made anew, so its passes are killed after 1, 2, … 10 writes.
    """
    loop, kills = TenantReconciler(w.kube, w.program.regions), 0
    for number in range(200):
        obj = await w.kube.get(Tenant, "red", "default")
        move = loop.plan(obj, await loop.see(obj, w.kube))
        if isinstance(move, Done):
            return kills
        tokens = isinstance(move, TenantChanges) and bool(move.tokens)
        effects = KillAfter(1 + number % 10 if tokens else 1)
        for region in w.program.regions.values():
            region.effects = effects
        try:
            await loop.act(move)
        except Killed:
            kills += 1
        await w.two_regions.clock.sleep(5)
    raise AssertionError("it never ends")


def test_it_can_be_killed_after_every_write() -> None:
    async def story() -> None:
        async with tenancy() as w:
            await start(w, host="a")
            await w.until(lambda: settled(w))
            w.program.manager.stop()
            await w.put(tenant(**FULL))
            assert await kill_everywhere(w) >= 14
            for name in ("north", "south"):
                region = w.two_regions.region(name)
                assert list(region.pools) == ["mox-red"]
                assert list(region.sdn.running["vnets"]) == [VNET]
                (token,) = region.access.users[TENANT_USER].tokens.values()
                secret = await w.kube.get(SECRETS, f"proxmox-{name}", SPACE)
                assert base64.b64decode(secret["data"]["secret"]).decode() == token.secret
            await w.put(tenant(host="a"))
            assert await kill_everywhere(w) >= 6
            for name in ("north", "south"):
                region = w.two_regions.region(name)
                assert set(remains(region)) <= set(region.firewall.groups)

    run_virtual(story())
