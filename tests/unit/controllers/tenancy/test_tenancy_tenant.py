"""The objects and the plan of a ``Tenant``."""

from typing import Any

import msgspec
import pytest

from moxwell.api.cozystack import Tenant
from moxwell.controllers.tenancy.annotations import TENANT_LABEL
from moxwell.controllers.tenancy.tenant import firewall, plan
from moxwell.controllers.tenancy.tenant.plan import ObservedFirewall, ObservedTenantNamespace
from moxwell.errors import Invalid
from moxwell.pve.endpoints.firewall import SecurityGroup
from moxwell.runtime.move import Done, Wait


def tenant(name: str, namespace: str = "default", **spec: Any) -> Tenant:
    tree = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
    return msgspec.convert(tree, Tenant)


@pytest.mark.parametrize(
    ("name", "namespace", "space"),
    [
        pytest.param("red", "default", "tenant-red", id="of nobody"),
        pytest.param("red", "tenant-root", "tenant-red", id="of the root tenant"),
        pytest.param("red", "tenant-blue", "tenant-blue-red", id="of another tenant"),
    ],
)
def test_namespaces(name: str, namespace: str, space: str) -> None:
    assert plan.namespace_of(tenant(name, namespace)) == space


@pytest.mark.parametrize("name", ["Red", "a-b", "1a", "a_b"])
def test_names_that_would_be_ambiguous_are_refused(name: str) -> None:
    with pytest.raises(Invalid, match="lower-case letters and digits"):
        plan.namespace_of(tenant(name))


def test_quotas_limit_requests_of_pods() -> None:
    given = {"cpu": 4, "memory": "8Gi", "pods": 10}
    quota = next(
        o for o in plan.desired_objects(tenant("red", resourceQuotas=given), ()) if "spec" in o
    )
    assert quota["spec"]["hard"] == {"requests.cpu": "4", "requests.memory": "8Gi", "pods": "10"}


@pytest.mark.parametrize("role", plan.ROLES)
def test_no_role_may_list_secrets_or_read_others_than_kubeconfigs(role: str) -> None:
    roles = {
        o["metadata"]["name"]: o
        for o in plan.desired_objects(tenant("red"), ["c1"])
        if "rules" in o
    }
    rules = [r for r in roles[f"tenant-red-{role}"]["rules"] if "secrets" in r["resources"]]
    for rule in rules:
        assert rule["verbs"] == ["get"]
        assert rule["resourceNames"] == ["c1-kubeconfig"]
    assert all("*" not in r["resources"] for r in roles[f"tenant-red-{role}"]["rules"])


# The plan

NAMESPACE = {"metadata": {"name": "tenant-red", "labels": {TENANT_LABEL: "red"}}}
ENDING = {"metadata": {**NAMESPACE["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
FOREIGN = {"metadata": {"name": "tenant-red"}}
ALLOW: dict[str, Any] = {"network": {"allowFrom": ["10.0.0.0/8"]}}
OURS = SecurityGroup(group="mox-red", comment=firewall.owner_comment("tenant-red"))
RULES = firewall.rules_for(tenant("red", **ALLOW))


def deleted(name: str) -> Tenant:
    meta = {"name": name, "namespace": "default", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    return msgspec.convert({"metadata": meta, "spec": {}}, Tenant, strict=False)


def firewalls(*found: ObservedFirewall) -> ObservedTenantNamespace:
    return ObservedTenantNamespace(firewalls=found)


GROUP = ObservedFirewall(region="north", group=OURS, rules=RULES)
DOWN = ObservedFirewall(region="south", error="no answer")
MOVES: dict[str, tuple[Tenant, ObservedTenantNamespace, int, bool]] = {
    "a new tenant": (tenant("red"), ObservedTenantNamespace(), 0, True),
    "a firewall that is missing": (
        tenant("red", **ALLOW), firewalls(ObservedFirewall(region="north")), 1, True,
    ),
    "a firewall that is up to date": (tenant("red", **ALLOW), firewalls(GROUP), 0, True),
    "a firewall with other rules": (
        tenant("red", **ALLOW), firewalls(ObservedFirewall(region="north", group=OURS)), 1, True,
    ),
    "one region does not answer": (
        tenant("red", **ALLOW), firewalls(ObservedFirewall(region="north"), DOWN), 1, True,
    ),
    "deleted": (deleted("red"), ObservedTenantNamespace(namespace=NAMESPACE), 0, True),
    "deleted, the namespace is gone": (deleted("red"), firewalls(GROUP), 1, False),
}  # fmt: skip


@pytest.mark.parametrize(("subject", "seen", "steps", "writes"), MOVES.values(), ids=MOVES)
def test_steps_and_writes(
    subject: Tenant, seen: ObservedTenantNamespace, steps: int, writes: bool
) -> None:
    move = plan.plan_tenant(subject, seen)
    assert isinstance(move, plan.TenantChanges)
    assert (len(move.steps), bool(move.writes)) == (steps, writes)


WAITS: dict[str, tuple[ObservedTenantNamespace, type]] = {
    "its namespace is being deleted": (ObservedTenantNamespace(namespace=ENDING), Wait),
    "a region does not answer": (firewalls(DOWN), Wait),
    "nothing is left": (firewalls(), Done),
    "a group of somebody else": (
        firewalls(ObservedFirewall(region="north", group=SecurityGroup(group="mox-red"))), Done,
    ),
    "no regions": (ObservedTenantNamespace(firewalls=None), Done),
}  # fmt: skip


@pytest.mark.parametrize(("seen", "kind"), WAITS.values(), ids=WAITS)
def test_deletion_waits_and_ends(seen: ObservedTenantNamespace, kind: type) -> None:
    assert isinstance(plan.plan_tenant(deleted("red"), seen), kind)


REFUSED: dict[str, tuple[Tenant, ObservedTenantNamespace, str]] = {
    "a namespace of somebody else": (
        tenant("red"),
        ObservedTenantNamespace(namespace=FOREIGN),
        "namespace tenant-red exists already",
    ),
    "a group of somebody else": (
        tenant("red", **ALLOW),
        firewalls(ObservedFirewall(region="north", group=SecurityGroup(group="mox-red"))),
        "security group mox-red in region north exists already",
    ),
    "a firewall without regions": (
        tenant("red", **ALLOW), ObservedTenantNamespace(firewalls=None), "needs Proxmox regions",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("subject", "seen", "text"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(subject: Tenant, seen: ObservedTenantNamespace, text: str) -> None:
    with pytest.raises(Invalid, match=text):
        plan.plan_tenant(subject, seen)


def test_an_unreachable_region_is_not_ready() -> None:
    status = plan.describe_tenant(tenant("red"), firewalls(DOWN))
    assert [c.reason for c in status.conditions] == ["RegionUnreachable"]
    assert status.namespace == "tenant-red"
