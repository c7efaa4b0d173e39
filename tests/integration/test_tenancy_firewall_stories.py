"""The Proxmox firewall of a tenant, and that no kind shows a tenant a Proxmox secret."""

import dataclasses
from typing import Any

import pytest

from moxwell import verify
from moxwell.api.cozystack import Kubernetes, Tenant
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.requests import Request, UserInfo
from moxwell.errors import Denied, MoxwellError
from moxwell.kube.client import Kube
from moxwell.plan.report import DocumentPlan
from moxwell.pve.effects import Owned
from moxwell.runtime.tenant_clients import SECRETS
from moxwell.testing.loop import run_virtual
from moxwell.testing.tenancy import TenantWorld, tenancy
from moxwell.verify.collector import ObservationCollector

HIDDEN = "5ec2e700-aaaa-4bbb-8ccc-dddddddddddd"
ROLES = ("view", "use", "admin", "super-admin")


def tenant(**spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "apps.cozystack.io/v1alpha1", "kind": "Tenant"}
    return {**head, "metadata": {"name": "red", "namespace": "default"}, "spec": spec}


def cluster(space: str, **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "apps.cozystack.io/v1alpha1", "kind": "Kubernetes"}
    body = {"nodeGroups": [{"name": "g", "replicas": 1, "regions": ["north"]}], **spec}
    return {**head, "metadata": {"name": "c1", "namespace": space}, "spec": body}


async def settled(w: TenantWorld) -> Any:
    found = await w.kube.find(Tenant, "red", "default")
    return found and found.status.namespace


async def sources(w: TenantWorld, region: str) -> set[str]:
    rules = await w.program.regions[region].reader.firewall.group_rules("mox-red")
    return {r.source for r in rules if r.enable}


async def groups(w: TenantWorld, region: str) -> dict[str, str]:
    return {g.group: g.comment for g in await w.program.regions[region].reader.firewall.groups()}


async def ready(w: TenantWorld, space: str) -> bool:
    found = await w.kube.find(Kubernetes, "c1", space)
    conditions = found.status.conditions if found else ()
    return any(c.type == "Ready" and c.status == "True" for c in conditions)


def test_a_plan_of_a_tenant_lists_the_nodes_that_roll() -> None:
    async def story() -> None:
        async with tenancy() as w:
            await w.put(tenant())
            space = await w.until(lambda: settled(w))
            await w.put(cluster(space))
            await w.until(lambda: ready(w, space))

            async def plan(**spec: Any) -> DocumentPlan:
                return (await w.planner.plan([tenant(**spec)])).parts[0]

            protected = await plan(network={"allowFrom": ["10.0.0.0/8"]})
            assert [(g.name, g.rolls, g.deleted) for g in protected.groups] == [("c1-g", True, 1)]
            assert [m.action for m in protected.machines] == ["create", "delete"]
            assert [m.why_not for m in protected.machines] == [
                "",
                "",
            ]  # the group is about to exist
            assert [o.name for o in protected.objects if o.kind == "SecurityGroup"] == [
                "north/mox-red",
                "south/mox-red",
            ]
            assert "the tenant's firewall replaces 1 node (c1-g)" in protected.notes[0]
            quiet = await plan(resourceQuotas={"cpu": 8})
            assert quiet.action == "update"
            assert [(g.rolls, g.created, g.deleted) for g in quiet.groups] == [(False, 0, 0)]
            assert not quiet.machines
            changed = [(o.action, o.kind) for o in quiet.objects]
            assert changed == [("update", "Namespace"), ("create", "ResourceQuota")]
            assert quiet.notes == ()

    run_virtual(story())


def test_a_tenant_has_a_security_group_in_every_region_and_its_nodes_use_it() -> None:
    async def story() -> None:
        async with tenancy() as w:
            await w.put(tenant(network={"allowFrom": ["10.0.0.0/8", "192.168.0.0/16"]}))
            space = await w.until(lambda: settled(w))
            for region in ("north", "south"):
                assert await sources(w, region) == {"10.0.0.0/8", "192.168.0.0/16"}
            await w.put(cluster(space))
            await w.until(lambda: ready(w, space))
            (guest,) = w.two_regions.guests("north").values()
            assert "firewall=1" in guest.conf["net0"]
            collector = ObservationCollector(
                w.kube, w.program.regions, w.two_regions.clock, w.control_planes.dial
            )
            found = await verify.verify(collector.observe, w.two_regions.clock)
            assert [f for f in found if f.level == "wrong"] == []
            await w.put(tenant(network={"allowFrom": ["10.0.0.0/8"]}))
            await w.two_regions.clock.sleep(90)
            assert await sources(w, "south") == {"10.0.0.0/8"}
            await w.kube.delete(Tenant, "red", "default")

            async def gone() -> bool:
                return await w.kube.find(Tenant, "red", "default") is None

            await w.until(gone, 1800)
            assert await groups(w, "north") == await groups(w, "south") == {}
            assert w.two_regions.guests("north") == {}

    run_virtual(story())


def test_nodes_roll_without_the_last_rule_and_then_the_group_is_deleted() -> None:
    async def story() -> None:
        async with tenancy() as w:
            await w.put(tenant(network={"allowFrom": ["10.0.0.0/8"]}))
            space = await w.until(lambda: settled(w))
            await w.put(cluster(space))
            await w.until(lambda: ready(w, space))
            assert "mox-red" in await groups(w, "north")
            await w.two_regions.clock.sleep(600)  # nothing changes any more
            await w.put(tenant(network={"allowFrom": []}))
            await w.two_regions.clock.sleep(5)
            assert "mox-red" in await groups(w, "north")  # the nodes name it

            async def gone() -> bool:
                machines = (await w.kube.list(ProxmoxMachine, space)).items
                left = [m.spec.firewall_groups for m in machines]
                there = "mox-red" in await groups(w, "north")
                assert there or not any(left)
                return not there and "mox-red" not in await groups(w, "south")

            await w.until(gone, 1800)

    run_virtual(story())


def test_a_security_group_of_another_owner_is_not_changed() -> None:
    async def story() -> None:
        async with tenancy() as w:
            pve = w.program.regions["south"].writer(Owned("test", names=("mox-red",)))
            await pve.firewall.create_group("mox-red", comment="mine")
            await w.put(tenant(network={"allowFrom": ["10.0.0.0/8"]}))

            async def refused() -> Any:
                found = await w.kube.get(Tenant, "red", "default")
                return [c.message for c in found.status.conditions if c.status == "False"]

            assert "does not belong to this tenant" in (await w.until(refused))[0]
            assert await groups(w, "south") == {"mox-red": "mine"}
            assert await sources(w, "south") == set()

    run_virtual(story())


async def everything_readable(w: TenantWorld, group: str) -> str:
    """All that a member of a group can read, of every kind that is served, as one text."""
    user = UserInfo(name="somebody", groups=(group, "system:authenticated"))
    texts = []
    for served in await w.kube.discover():
        for path in (served.resource.path(), served.resource.path("tenant-red")):
            answer = await w.two_regions.store.handle(Request(method="GET", path=path, user=user))
            if answer.status == 200:
                texts.append(answer.body.decode())
    return "\n".join(texts)


class As:
    """The API as a member of a group sees it."""

    def __init__(self, w: TenantWorld, group: str) -> None:
        self._store, self._user = (
            w.two_regions.store,
            UserInfo(name="x", groups=(group, "system:authenticated")),
        )

    async def handle(self, request: Request) -> Any:
        return await self._store.handle(dataclasses.replace(request, user=self._user))


def test_no_kind_shows_a_tenant_a_proxmox_secret(capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        async with tenancy() as w:
            await w.put(tenant())
            space = await w.until(lambda: settled(w))
            data = {
                "url": "https://north.example:8006",
                "token": "moxwell@pve!test",
                "secret": HIDDEN,
            }
            for where in (space, "default"):
                meta = {"name": "proxmox", "namespace": where}
                head = {"apiVersion": "v1", "kind": "Secret", "metadata": meta}
                await w.kube.create({**head, "stringData": data}, SECRETS)
            mine = cluster(space, credentialsRef={"name": "proxmox"})
            await Kube(As(w, f"{space}-admin")).create(mine, Kubernetes.resource)
            await w.two_regions.clock.sleep(300)
            for role in ROLES:
                text = await everything_readable(w, f"{space}-{role}")
                assert '"c1"' in text  # it does see its cluster
                assert HIDDEN not in text
                for name in ("proxmox", "c1-kubeconfig"):
                    await _hides(w, f"{space}-{role}", space, name)

    run_virtual(story())
    logged = capsys.readouterr()
    assert HIDDEN not in logged.out + logged.err


async def _hides(w: TenantWorld, group: str, space: str, name: str) -> None:
    """Reading is refused without showing the secret, or it is the tenant's own kubeconfig."""
    try:
        text, allowed = str(await Kube(As(w, group)).get(SECRETS, name, space)), True
    except MoxwellError as error:
        text, allowed = str(error), False
    assert HIDDEN not in text
    assert not allowed or name == "c1-kubeconfig"


def test_credentials_of_another_namespace_are_refused() -> None:
    async def story() -> None:
        async with tenancy() as w:
            await w.put(tenant())
            space = await w.until(lambda: settled(w))
            with pytest.raises(Denied, match="only use Secrets of its own"):
                await w.put(
                    cluster(space, credentialsRef={"name": "proxmox", "namespace": "default"})
                )

    run_virtual(story())
