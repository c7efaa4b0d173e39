"""What machines of an isolated tenant may name."""

from typing import Any

import msgspec
import pytest

from moxwell.api.infra.machine import ProxmoxMachineSpec
from moxwell.api.infra.tenant_limits import TenantLimits, limits_in, violations_of

LIMITS = TenantLimits("mox-red", "mxred", None)
OWN = {"pool": "mox-red", "network": {"networkDevices": [{"name": "net0", "bridge": "mxred"}]}}
TAGGED = {"networkDevices": [{"name": "net0", "bridge": "vmbr0", "vlan": 7}]}
CASES: dict[str, tuple[dict[str, Any], TenantLimits, str]] = {
    "its own": (OWN, LIMITS, ""),
    "below the pool of Moxwell": ({**OWN, "pool": "kubernetes/mox-red"}, LIMITS, ""),
    "another tenant's pool": ({**OWN, "pool": "mox-blue"}, LIMITS, "mox-blue is not the tenant's"),
    "a similar pool": ({**OWN, "pool": "a-mox-red"}, LIMITS, "a-mox-red is not the tenant's"),
    "no pool": ({**OWN, "pool": None}, LIMITS, "none is not the tenant's pool"),
    "another bridge": (
        {**OWN, "network": TAGGED},
        LIMITS,
        "vmbr0 is not the tenant's mxred",
    ),
    "no network": ({"pool": "mox-red"}, LIMITS, "no network device names the tenant's bridge"),
    "its VLAN": ({"network": TAGGED}, TenantLimits(bridge="vmbr0", vlan=7), ""),
    "another VLAN": ({"network": TAGGED}, TenantLimits(vlan=8), "vlan: 7 is not the tenant's 8"),
    "not limited": ({}, TenantLimits(), ""),
}


@pytest.mark.parametrize(("spec", "limits", "expected"), CASES.values(), ids=CASES)
def test_a_machine_stays_within_its_tenant(
    spec: dict[str, Any], limits: TenantLimits, expected: str
) -> None:
    found = "; ".join(violations_of(msgspec.convert(spec, ProxmoxMachineSpec), None, limits))
    assert expected in found if expected else not found


def test_the_pool_of_the_cluster_counts() -> None:
    spec = msgspec.convert({"network": OWN["network"]}, ProxmoxMachineSpec)
    assert not list(violations_of(spec, "mox-red", LIMITS))
    assert list(violations_of(spec, "mox-blue", LIMITS))


def test_limits_are_annotations_of_the_namespace() -> None:
    names = {"moxwell.dev/pool": "mox-red", "moxwell.dev/bridge": "mxred", "moxwell.dev/vlan": "7"}
    isolated = {"annotations": {**names, "moxwell.dev/isolated": "true"}}
    assert limits_in(isolated) == TenantLimits("mox-red", "mxred", 7)
    assert limits_in({"annotations": names}) is None
    assert limits_in({}) is None


@pytest.mark.parametrize(
    ("pool", "allowed"),
    [("", True), ("templates", True), ("mox-red", True), ("k/mox-red", True), ("mox-blue", False),
     ("k/mox-blue", False)],
)  # fmt: skip
def test_templates_of_other_tenants_are_not_cloned(pool: str, allowed: bool) -> None:
    assert LIMITS.allows_template_in(pool) is allowed
