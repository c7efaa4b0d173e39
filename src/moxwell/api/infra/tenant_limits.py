"""
What machines of an isolated tenant may use, from the annotations of its namespace. Pure.

The Tenant controller writes the annotations; users of a namespace cannot change its metadata.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from moxwell.api.infra.machine import ProxmoxMachineSpec

ISOLATED = "moxwell.dev/isolated"  # machines use this pool, bridge and VLAN and no others
POOL = "moxwell.dev/pool"  # the Proxmox resource pool of every guest
BRIDGE = "moxwell.dev/bridge"  # the bridge or VNet of nodes that name none
VLAN = "moxwell.dev/vlan"  # the VLAN tag of every node
POOL_PREFIX = "mox-"  # of the names of tenants' pools


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """Pool, bridge and VLAN of an isolated tenant; empty: not limited."""

    pool: str = ""
    bridge: str = ""
    vlan: int | None = None

    def allows_pool(self, pool: str) -> bool:
        """The tenant's pool may be below the pool that Moxwell is limited to."""
        return not self.pool or pool == self.pool or pool.endswith(f"/{self.pool}")

    def allows_template_in(self, pool: str) -> bool:
        """Templates in the pools of other tenants may not be cloned."""
        name = pool.rpartition("/")[2]
        return not name.startswith(POOL_PREFIX) or name == self.pool


def limits_in(metadata: Mapping[str, Any]) -> TenantLimits | None:
    """The limits of a namespace; None if its tenant is not isolated."""
    annotations = metadata.get("annotations") or {}
    if annotations.get(ISOLATED) != "true":
        return None
    vlan = str(annotations.get(VLAN, ""))
    return TenantLimits(
        annotations.get(POOL, ""),
        annotations.get(BRIDGE, ""),
        int(vlan) if vlan.isdecimal() else None,
    )


def violations_of(
    spec: ProxmoxMachineSpec, cluster_pool: str | None, limits: TenantLimits
) -> Iterator[str]:
    """What a machine names that its tenant may not use."""
    pool = spec.pool or cluster_pool or ""
    if not limits.allows_pool(pool):
        yield f"spec.pool: {pool or 'none'} is not the tenant's pool {limits.pool}"
    for device in spec.network.network_devices if spec.network else ():
        where = f"spec.network.networkDevices[{device.name}]"
        if limits.bridge and device.bridge != limits.bridge:
            yield f"{where}.bridge: {device.bridge or 'none'} is not the tenant's {limits.bridge}"
        if limits.vlan is not None and device.vlan != limits.vlan:
            yield f"{where}.vlan: {device.vlan or 'none'} is not the tenant's {limits.vlan}"
    if limits.bridge and (spec.network is None or not spec.network.network_devices):
        yield f"spec.network: no network device names the tenant's bridge {limits.bridge}"
