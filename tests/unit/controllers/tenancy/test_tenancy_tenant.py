"""What a ``Tenant`` stands for."""

from typing import Any

import msgspec
import pytest

from moxwell.api.cozystack import Tenant
from moxwell.controllers.tenancy.tenant import plan
from moxwell.errors import Invalid


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
    with pytest.raises(Invalid, match="letters and digits"):
        plan.namespace_of(tenant(name))


def test_quotas_are_of_what_pods_ask_for() -> None:
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
