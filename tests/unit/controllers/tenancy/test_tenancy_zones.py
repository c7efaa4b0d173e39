"""Regions and zones of node groups."""

from typing import Any

import msgspec
import pytest

from moxwell.api.cozystack import Kubernetes
from moxwell.controllers.tenancy.cluster.defaults import Defaults, RegionDefaults
from moxwell.controllers.tenancy.cluster.desired_objects import expand
from moxwell.errors import Invalid

RACKS = {"rack-a": ("pve1", "pve2"), "rack-b": ("pve3",)}
DEFAULTS = Defaults(
    regions=(
        RegionDefaults(name="north", pool="north-nodes", zones=RACKS),
        RegionDefaults(name="south", pool="south-nodes"),
        RegionDefaults(name="west", pool="west-nodes", zones={"rack-a": ("pve9",)}),
    )
)


def spread(*groups: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """The failure domain or zones of each group, and the zones of the cluster."""
    rows = [{"name": f"g{n}", "replicas": 1, **g} for n, g in enumerate(groups)]
    tree = {"metadata": {"name": "c", "namespace": "t", "uid": "u"}}
    app = msgspec.convert({**tree, "spec": {"nodeGroups": rows, **spec}}, Kubernetes)
    objects = expand(app, DEFAULTS)
    found: dict[str, Any] = {}
    for obj in objects:
        if obj["kind"] == "ProxmoxCluster":
            found["zones"] = {
                z["zone"]: (z["region"], tuple(z.get("nodes", ())), bool(z.get("onRequest")))
                for z in obj["spec"]["zoneConfig"]
            }
        if obj["kind"] == "MachineDeployment":
            name = obj["metadata"]["name"].removeprefix("c-")
            found[name] = obj["spec"]["template"]["spec"].get("failureDomain", "")
        if obj["kind"] == "ProxmoxMachineTemplate":
            name = obj["metadata"]["name"].rsplit("-", 1)[0].removeprefix("c-")
            found[f"{name}.among"] = obj["spec"]["template"]["spec"].get("zones", [])
    return found


def test_all_regions_need_no_failure_domain() -> None:
    found = spread({})
    assert (found["g0"], found["g0.among"]) == ("", [])
    assert found["zones"] == {n: (n, (), False) for n in ("north", "south", "west")}


def test_one_region_is_a_failure_domain() -> None:
    found = spread({"regions": ["south"]})
    assert (found["g0"], found["g0.among"]) == ("south", [])
    assert found["zones"] == {"south": ("south", (), False)}


def test_some_regions_of_several_are_named() -> None:
    found = spread({"regions": ["north", "south"]}, {})
    assert (found["g0"], found["g0.among"]) == ("", ["north", "south"])
    assert (found["g1"], found["g1.among"]) == ("", [])


def test_a_zone_is_a_failure_domain_of_groups_that_name_it() -> None:
    found = spread({"regions": ["north"], "zones": ["rack-a"]}, {"regions": ["north"]})
    assert (found["g0"], found["g1"]) == ("north-rack-a", "north")
    assert found["zones"] == {
        "north": ("north", (), False),
        "north-rack-a": ("north", ("pve1", "pve2"), True),
    }


def test_a_zone_name_applies_to_each_region_that_has_it() -> None:
    found = spread({"zones": ["rack-a"]})
    assert found["g0.among"] == ["north-rack-a", "west-rack-a"]


def test_a_zone_that_is_not_configured_is_a_host() -> None:
    found = spread({"regions": ["south"], "zones": ["pve2"]})
    assert found["g0"] == "south-pve2"
    assert found["zones"] == {"south-pve2": ("south", ("pve2",), True)}


def test_another_group_elsewhere_does_not_roll_this_one() -> None:
    before = spread({}, regions=["north", "south"])
    after = spread({}, {"regions": ["west"]}, {"zones": ["rack-b"]}, regions=["north", "south"])
    assert before["g0.among"] == after["g0.among"] == []
    assert after["zones"]["west"] == ("west", (), True)
    assert {z for z, (_, _, asked) in after["zones"].items() if not asked} == {"north", "south"}


def test_an_unknown_region_is_refused() -> None:
    with pytest.raises(Invalid, match="region 'east' is not configured"):
        spread({"regions": ["east"]})


def test_several_zones_never_allocate_the_same_addresses() -> None:
    network = {"addresses": ["10.0.0.10-10.0.0.20"], "gateway": "10.0.0.1"}
    app = msgspec.convert(
        {
            "metadata": {"name": "c", "namespace": "t", "uid": "u"},
            "spec": {"nodeGroups": [{"name": "a", "replicas": 1}], "network": network},
        },
        Kubernetes,
    )
    (ground,) = [o for o in expand(app, DEFAULTS) if o["kind"] == "ProxmoxCluster"]
    assert ground["spec"]["ipv4Config"]["addresses"] == network["addresses"]
    assert not any("ipv4Config" in z for z in ground["spec"]["zoneConfig"])
