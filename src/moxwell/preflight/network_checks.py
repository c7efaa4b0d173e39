"""Checks of bridges, VLANs and VNets on every allowed host. Pure."""

from collections.abc import Iterable, Iterator

from moxwell.preflight.facts import RegionFacts
from moxwell.preflight.outcome import NetworkNeed, RegionCheck, RegionNeeds, failed, passed, warned
from moxwell.pve.endpoints.nodes import HostInterface
from moxwell.pve.endpoints.sdn import SdnVnet

APPLY = "apply it: pvesh set /cluster/sdn, or Datacenter, SDN, Apply"


def check_networks(facts: RegionFacts, needs: RegionNeeds) -> Iterable[RegionCheck]:
    """Every network that is asked for, and SDN changes that are not applied."""
    for need in sorted(set(needs.networks)):
        yield from _network(facts, needs, need)
    used = {need.bridge for need in needs.networks}
    for zone in facts.zones:
        of_zone = {vnet.vnet for vnet in facts.vnets if vnet.zone == zone.zone}
        if zone.state and used & of_zone:
            yield warned("network", f"the SDN zone {zone.zone} has pending changes", APPLY)


def _network(facts: RegionFacts, needs: RegionNeeds, need: NetworkNeed) -> Iterator[RegionCheck]:
    vnet = next((row for row in facts.vnets if row.vnet == need.bridge), None)
    if vnet is not None:
        yield from _vnet(facts, needs, vnet)
        return
    mtus, lacking = set[int](), False
    for host, rows in sorted(facts.bridges.items()):
        if not needs.allows(host):
            continue
        found = next((row for row in rows if row.iface == need.bridge), None)
        lacking |= found is None or not found.active
        yield from _bridge(host, found, need)
        mtus |= {found.mtu or 1500} if found is not None else set()
    if len(mtus) > 1:
        do = "set the same MTU on all hosts"
        text = f"{need.bridge} has different MTUs: {', '.join(map(str, sorted(mtus)))}"
        yield warned("network", text, do)
    if facts.bridges and not lacking:
        yield passed("network", f"{need.bridge} exists on all hosts")


def _bridge(host: str, found: HostInterface | None, need: NetworkNeed) -> Iterator[RegionCheck]:
    if found is None:
        do = f"create {need.bridge} on {host}, or name another bridge in the machines"
        yield failed("network", f"{host} has no bridge {need.bridge}", do)
    elif not found.active:
        do = f"apply the network configuration of {host} (ifreload -a), with 'Autostart' set"
        yield failed("network", f"{need.bridge} of {host} is not up", do)
    elif need.vlan and not found.bridge_vlan_aware:
        do = f"set 'VLAN aware' on {need.bridge} of {host} (bridge-vlan-aware yes)"
        yield warned("network", f"{need.bridge} of {host} takes no VLAN tags", do)


def _vnet(facts: RegionFacts, needs: RegionNeeds, vnet: SdnVnet) -> Iterator[RegionCheck]:
    """A VNet exists where its zone does, once it is applied."""
    zone = next((row for row in facts.zones if row.zone == vnet.zone), None)
    if vnet.state == "new":
        yield failed("network", f"the VNet {vnet.vnet} is not applied", APPLY)
        return
    limited = zone.nodes.split(",") if zone is not None and zone.nodes else []
    outside = [h for h in sorted(facts.bridges) if needs.allows(h) and limited and h not in limited]
    for host in outside:
        do = f"add {host} to the nodes of the zone {vnet.zone}"
        yield failed("network", f"{host} has no VNet {vnet.vnet}", do)
    if not outside:
        yield passed("network", f"the VNet {vnet.vnet} exists on all hosts")
