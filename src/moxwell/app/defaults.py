"""
What an instance has before anybody asks for anything: address pools of the lab, and defaults.

The lab's pools are global ones, one for each region. A real estate has none: there nodes get their
addresses by DHCP unless a manifest says otherwise.
"""

from typing import Any

from moxwell.api.ipam import GlobalInClusterIPPool
from moxwell.controllers.tenancy.cluster.defaults import Defaults, RegionDefaults
from moxwell.kube.client import Kube
from moxwell.pve.regions import Regions

Json = dict[str, Any]
VERSION = "v1.34.1"


def _pool_name(region: str) -> str:
    return f"{region}-nodes"


async def settle(kube: Kube, regions: Regions, lab: bool) -> None:
    """Make what is missing; harmless to repeat."""
    if not lab:
        return
    for number, name in enumerate(sorted(regions)):
        base = f"10.{20 + 10 * number}.4"
        body: Json = {
            "apiVersion": GlobalInClusterIPPool.resource.api_version,
            "kind": "GlobalInClusterIPPool",
            "metadata": {"name": _pool_name(name)},
            "spec": {
                "addresses": [f"{base}.10-{base}.250"],
                "prefix": 24,
                "gateway": f"{base}.1",
            },
        }
        await kube.apply(body, GlobalInClusterIPPool.resource, force=True)


def defaults(regions: Regions, lab: bool, version: str = "") -> Defaults:
    """What a ``Kubernetes`` need not say here; ``version``: of the genuine programs there are."""
    rows = [
        RegionDefaults(
            name=name,
            pool=_pool_name(name) if lab else "",
            dns=(f"10.{20 + 10 * number}.4.1",) if lab else (),
            zones=regions[name].config.zones,
        )
        for number, name in enumerate(sorted(regions))
    ]
    return Defaults(regions=tuple(rows), version=version or VERSION)
