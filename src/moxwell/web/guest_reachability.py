"""The request of ``moxwell doctor`` that checks from guests that control planes can be reached."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from moxwell.api.capi.core import Cluster
from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.kube.reader import Reader
from moxwell.preflight import guest_connections
from moxwell.preflight.guest_connections import GuestProbe
from moxwell.preflight.outcome import RegionCheck
from moxwell.pve.regions import Regions
from moxwell.verify.host_names import resolve_host
from moxwell.web.findings import of_check

Query = Mapping[str, Any]


def make(reader: Reader, regions: Regions) -> Callable[[Query], Awaitable[Any]]:
    """The action: one guest of each cluster in each region is asked."""

    async def reachability(query: Query) -> Any:
        clusters = (await reader.list(Cluster)).items
        guests = chosen((await reader.list(ProxmoxMachine)).items)
        asked = [
            _check(regions, cluster, guest)
            for cluster in clusters
            if cluster.spec.control_plane_endpoint.host
            for guest in guests
            if (guest.namespace, _cluster(guest)) == (cluster.namespace, cluster.name)
        ]
        found = await asyncio.gather(*asked)  # an agent that does not answer takes seconds
        return {"rows": [of_check(check) for check in found if check is not None]}

    return reachability


def chosen(guests: Iterable[ProxmoxMachine]) -> tuple[ProxmoxMachine, ...]:
    """One running guest of each cluster in each region: the one that is created last."""
    found = {
        (guest.namespace, _cluster(guest), guest.spec.region): guest
        for guest in sorted(guests, key=lambda g: (str(g.metadata.creation_timestamp), g.name))
        if guest.status.power_state == "running" and guest.status.proxmox_node
    }
    return tuple(found.values())


def _cluster(guest: ProxmoxMachine) -> str:
    return (guest.metadata.labels or {}).get(CLUSTER_NAME, "")


async def _check(regions: Regions, cluster: Cluster, guest: ProxmoxMachine) -> RegionCheck | None:
    region, vmid = regions.find(guest.spec.region or ""), guest.spec.virtual_machine_id
    if region is None or vmid is None or not region.inventory.health.reachable:
        return None  # a region that does not answer is a finding of its own
    endpoint = cluster.spec.control_plane_endpoint
    connections, error = await guest_connections.read(region, guest.status.proxmox_node, vmid)
    return guest_connections.check(
        GuestProbe(
            cluster=cluster.name,
            guest=guest.name,
            region=region.name,
            host=endpoint.host,
            port=endpoint.port,
            addresses=await resolve_host(endpoint.host),
            connections=connections,
            error=error,
        )
    )
