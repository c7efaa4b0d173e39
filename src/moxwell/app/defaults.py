"""
What an instance provides before any object exists: the lab's address pools and cluster defaults.

The lab has one global address pool for each region. Configured regions have none: there, nodes get
their addresses by DHCP unless a manifest names a pool.
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


async def apply_lab_pools(kube: Kube, regions: Regions) -> None:
    """Apply the lab's address pools; idempotent."""
    for number, name in enumerate(sorted(regions)):
        network = f"10.{20 + 10 * number}"
        base = f"{network}.4"
        body: Json = {
            "apiVersion": GlobalInClusterIPPool.resource.api_version,
            "kind": "GlobalInClusterIPPool",
            "metadata": {"name": _pool_name(name)},
            "spec": {
                "addresses": [f"{base}.10-{base}.250", f"{network}.16.0-{network}.31.255"],
                "prefix": 16,
                "gateway": f"{base}.1",
            },
        }
        await kube.apply(body, GlobalInClusterIPPool.resource, force=True)


def defaults(regions: Regions, *, lab: bool, version: str = "") -> Defaults:
    """The defaults of a ``Kubernetes``; ``version`` is that of the installed binaries, if any."""
    rows = [
        RegionDefaults(
            name=name,
            pool=_pool_name(name) if lab else "",
            dns=(f"10.{20 + 10 * number}.4.1",) if lab else (),
            zones=regions[name].config.zones,
            resource_pool=regions[name].config.pool,
        )
        for number, name in enumerate(sorted(regions))
    ]
    return Defaults(regions=tuple(rows), version=version or VERSION)
