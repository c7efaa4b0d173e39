"""Hosts, storages, templates and security groups of the zones that a node class may use. Pure."""

from collections.abc import Iterator, Mapping

from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.zone_settings import ZoneSettings
from moxwell.controllers.karpenter.proxmox.class_sources import Zones
from moxwell.controllers.karpenter.proxmox.host_states import allowed_hosts
from moxwell.controllers.karpenter.proxmox.node_class_check import ZoneContents
from moxwell.pve.model import ObservedGuest
from moxwell.pve.regions import Region
from moxwell.scheduling.inventory_model import HostKey, Template


def contents_of(
    cluster: ProxmoxCluster,
    zones: Zones,
    groups: Mapping[str, frozenset[str] | None],
    architectures: Mapping[HostKey, str],
) -> Iterator[ZoneContents]:
    """The contents of each zone; ``groups`` are the security groups by region."""
    for zone, (region, settings) in zones.items():
        view = region.inventory.view
        hosts = frozenset(online_hosts(cluster, region, settings))
        yield ZoneContents(
            region.name,
            zone,
            hosts,
            view.pools,
            {host: _stores(region, host) for host in hosts},
            tuple(_template(region.name, t) for t in view.templates if t.kind == "qemu"),
            groups.get(region.name),
            {h: architectures.get(HostKey(region.name, h), "") for h in view.hosts},
        )


def online_hosts(
    cluster: ProxmoxCluster, region: Region, settings: ZoneSettings
) -> tuple[str, ...]:
    """The hosts of a zone that are online and that the cluster may use."""
    hosts = region.inventory.view.hosts
    allowed = allowed_hosts(cluster.spec, region, settings)
    return tuple(host for host in allowed if hosts[host].online)


def _stores(region: Region, host: str) -> frozenset[str]:
    return frozenset(
        name
        for (at, name), store in region.inventory.view.storages.items()
        if at == host and store.available and "images" in store.content
    )


def _template(region: str, guest: ObservedGuest) -> Template:
    key = HostKey(region, guest.host)
    return Template(key, guest.vmid, guest.name, frozenset(guest.tags))
