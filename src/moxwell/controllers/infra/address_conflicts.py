"""
Finds who else has an address that a pool gave to a machine.

An IPAM provider knows its own claims only. So before the first use of an address it is compared
with hosts, guests, their agents, the IPAM of the SDN, the Nodes of the cluster and claims of other
pools.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from moxwell.api.capi.core import Cluster
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.network import NetworkDevice
from moxwell.api.ipam import IPAddress, IPAddressClaim
from moxwell.controllers.infra.address_user_reader import AddressUserReader
from moxwell.controllers.infra.address_users import (
    NODE,
    TAKEN,
    TAKEN_BY,
    AddressUser,
    Network,
    normalized,
    other_user,
)
from moxwell.controllers.infra.host_capabilities import HostCapabilityCache
from moxwell.controllers.infra.node_addresses import NodeAddressReader
from moxwell.controllers.infra.owners import cluster_key, proxmox_cluster_key
from moxwell.pve.regions import Region
from moxwell.runtime import index
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key

# Whoever may write the Nodes of a tenant must not exhaust a pool that others share.
MAX_RESERVED_FOR_NODES = 8
BY_ADDRESS, BY_CLAIM, BY_OWNER = "infra.address", "infra.address_of", "owner"


@dataclass(frozen=True, slots=True)
class AddressCaches:
    """The objects that show which machine uses which address."""

    claims: Cache[IPAddressClaim]
    addresses: Cache[IPAddress]
    machines: Cache[ProxmoxMachine]
    clusters: Cache[Cluster]
    proxmox_clusters: Cache[ProxmoxCluster]


@dataclass(frozen=True, slots=True)
class AddressUse:
    """An address, the claim it was given for, and where it would be used."""

    claim: Key
    address: str
    network: Network
    cluster: Key | None = None
    vmid: int = 0  # of the machine's own guest
    node: str = ""  # of the machine


class AddressConflicts:
    """Finds other users of addresses."""

    def __init__(
        self,
        guests: AddressUserReader,
        nodes: NodeAddressReader,
        hosts: HostCapabilityCache,
        caches: AddressCaches,
    ) -> None:
        self._guests, self._nodes, self._hosts = guests, nodes, hosts
        self._caches = caches
        caches.addresses.add_index(BY_ADDRESS, _by_address)
        caches.addresses.add_index(BY_CLAIM, _by_claim)
        caches.claims.add_index(BY_OWNER, index.by_owner)

    def address_of(self, claim: Key) -> str:
        """The address that was given for a claim; empty if there is none."""
        found = self._caches.addresses.by(BY_CLAIM, str(claim))
        return found[0].spec.address if found else ""

    async def find(self, use: AddressUse, region: Region) -> AddressUser | None:
        """Another user of the address in its network; None if there is none."""
        guests = await self._guests.read(region, self._known_guests(region), use.vmid)
        nodes = await self._node_users(use)
        hosts = await self._host_users(region)
        claims = self._claims(use, region)
        return other_user(use.address, use.network, (*claims, *nodes, *hosts, *guests))

    async def _host_users(self, region: Region) -> tuple[AddressUser, ...]:
        """The addresses of the hosts on their bridges; placement has read them already."""
        found: list[AddressUser] = []
        for host in region.inventory.hosts.values():
            rows = await self._hosts.host_bridges(region, host.name) if host.online else {}
            for bridge, row in rows.items():
                used = filter(None, map(normalized, (row.cidr, row.cidr6)))
                found += [AddressUser(a, f"host {host.name}", Network(bridge)) for a in used]
        return tuple(found)

    async def _node_users(self, use: AddressUse) -> tuple[AddressUser, ...]:
        """The Nodes of the cluster; so many of its reservations may be due to them, but no more."""
        own = self._caches.claims.find(use.claim)
        if use.cluster is None:
            return ()
        if own is None or not _is_reservation(own):
            claims = self._caches.claims.list(use.cluster.namespace)
            due = [c for c in claims if _is_due_to_node(c) and cluster_key(c) == use.cluster]
            if len(due) >= MAX_RESERVED_FOR_NODES:
                return ()
        return await self._nodes.read(use.cluster, use.node)

    def _known_guests(self, region: Region) -> frozenset[int]:
        """The guests whose addresses are those of claims, or that have none yet."""
        machines = self._caches.machines.list()
        return frozenset(
            machine.spec.virtual_machine_id
            for machine in machines
            if machine.spec.region == region.name
            and machine.spec.virtual_machine_id is not None
            and (not machine.spec.provider_id or self._caches.claims.by(BY_OWNER, machine.uid))
        )

    def _claims(self, use: AddressUse, region: Region) -> Iterator[AddressUser]:
        own = self._caches.claims.find(use.claim)
        wanted = normalized(use.address)
        for address in self._caches.addresses.by(BY_ADDRESS, wanted):
            key = Key(address.namespace, address.spec.claim_ref.name)
            claim = self._caches.claims.find(key)
            if claim is None or key == use.claim or claim.deleting or _is_reservation(claim):
                continue
            name, machine = f"claim {key}", self._machine(claim)
            if machine is None and key.namespace == use.claim.namespace:
                yield AddressUser(wanted, name)  # the endpoint of a control plane
            elif machine is not None and _is_first(machine, claim, own, region):
                yield AddressUser(wanted, name, self._network(machine, claim))

    def _machine(self, claim: IPAddressClaim) -> ProxmoxMachine | None:
        kind = ProxmoxMachine.resource.kind
        names = [o.name for o in claim.metadata.owner_references if o.kind == kind]
        return self._caches.machines.find(Key(claim.namespace, names[0])) if names else None

    def _network(self, machine: ProxmoxMachine, claim: IPAddressClaim) -> Network | None:
        """The network of another machine; None if only its template names the bridge."""
        name = claim.name.removeprefix(f"{machine.name}-").partition("-")[0]
        given = machine.spec.network.network_devices if machine.spec.network else ()
        device = next((d for d in given if d.name == name), NetworkDevice(name="net0"))
        key = cluster_key(machine)
        cluster = self._caches.clusters.find(key) if key else None
        key = proxmox_cluster_key(cluster) if cluster else None
        owner = self._caches.proxmox_clusters.find(key) if key else None
        zone = machine.spec.claim.zone if machine.spec.claim else ""
        zones = owner.spec.zone_config if owner else ()
        config = next((z for z in zones if z.zone == (zone or "default")), None)
        bridge = device.bridge or (config.bridge if config else None)
        vlan = device.vlan or (config.vlan if config else None)
        return Network(bridge, str(vlan or "")) if bridge else None


def _by_address(obj: IPAddress) -> Iterable[str]:
    return (normalized(obj.spec.address),)


def _by_claim(obj: IPAddress) -> Iterable[str]:
    return (str(Key(obj.namespace, obj.spec.claim_ref.name)),)


def _is_reservation(claim: IPAddressClaim) -> bool:
    return TAKEN in claim.metadata.labels


def _is_due_to_node(claim: IPAddressClaim) -> bool:
    return claim.metadata.annotations.get(TAKEN_BY, "").startswith(NODE)


def _is_first(
    machine: ProxmoxMachine, claim: IPAddressClaim, own: IPAddressClaim | None, region: Region
) -> bool:
    """Whether another machine of the region keeps the address: it runs, or claimed it earlier."""
    if machine.spec.region != region.name:
        return False
    return bool(machine.spec.provider_id) or own is None or _age(claim) < _age(own)


def _age(claim: IPAddressClaim) -> tuple[str, str, str]:
    return (str(claim.metadata.creation_timestamp or ""), claim.namespace, claim.name)
