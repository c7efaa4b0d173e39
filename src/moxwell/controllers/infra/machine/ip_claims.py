"""Reads a machine's IPAddressClaims and the addresses they were given, from caches only."""

import ipaddress
from dataclasses import replace
from itertools import chain, count

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.network import NetworkDevice
from moxwell.api.infra.zone_settings import ZoneSettings
from moxwell.api.ipam import GlobalInClusterIPPool, InClusterIPPool, IPAddress, IPAddressClaim
from moxwell.bootstrap.network import InterfaceAddress
from moxwell.bootstrap.network_plan import AddressRequest, address_requests
from moxwell.controllers.infra.address_users import TAKEN
from moxwell.controllers.infra.machine.observed import ObservedAddresses
from moxwell.runtime import index
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key

BY_OWNER = "owner"
METRIC_ANNOTATION = "ipam.capmox.cluster.x-k8s.io/gateway-metric"


class IPClaimReader:
    """Reads what the IPAM providers assigned."""

    def __init__(
        self,
        claims: Cache[IPAddressClaim],
        addresses: Cache[IPAddress],
        pools: Cache[InClusterIPPool],
        global_pools: Cache[GlobalInClusterIPPool],
    ) -> None:
        self._claims, self._addresses = claims, addresses
        self._pools, self._global_pools = pools, global_pools
        claims.add_index(BY_OWNER, index.by_owner)

    def owned(self, obj: ProxmoxMachine) -> tuple[str, ...]:
        """The claims that the machine owns and that are not being deleted."""
        found = self._claims.by(BY_OWNER, obj.uid)
        return tuple(claim.name for claim in found if not claim.deleting)

    def read(
        self, obj: ProxmoxMachine, devices: tuple[NetworkDevice, ...], zone: ZoneSettings
    ) -> ObservedAddresses:
        """The state of all claims that the machine needs, by name."""
        requests = self._named(obj, address_requests(obj.name, devices, zone))
        missing, wrong, pending = [], [], []
        given: dict[str, tuple[InterfaceAddress, ...]] = {}
        by_claim: dict[str, InterfaceAddress] = {}
        for request in requests:
            claim = self._claims.find(Key(obj.namespace, request.name))
            if claim is None:
                missing.append(request)
            elif not _matches(claim, request):
                wrong.append(request.name)
            elif (address := self._address(obj, claim, request)) is None:
                pending.append(request.name)
            else:
                given[request.device] = (*given.get(request.device, ()), address)
                by_claim[request.name] = address
        names = {r.name for r in requests}
        wrong += [name for name in self.owned(obj) if name not in names]
        return ObservedAddresses(
            requests, tuple(missing), tuple(wrong), tuple(pending), given, by_claim
        )

    def _named(
        self, obj: ProxmoxMachine, requests: tuple[AddressRequest, ...]
    ) -> tuple[AddressRequest, ...]:
        """The requests with the names of the machine's claims, or of claims to be made."""
        owned = self.owned(obj)
        return tuple(replace(r, name=self._name(obj, r.name, owned)) for r in requests)

    def _name(self, obj: ProxmoxMachine, first: str, owned: tuple[str, ...]) -> str:
        """
        The name of a claim; a number follows where earlier claims reserve taken addresses.

        The claim that the machine has keeps its name when a reservation is released.
        """
        for name in owned:
            if name == first or name.removeprefix(f"{first}-").isdigit():
                return name
        names = chain((first,), (f"{first}-{number}" for number in count(2)))
        return next(name for name in names if not self._is_reservation(obj, name))

    def _is_reservation(self, obj: ProxmoxMachine, name: str) -> bool:
        claim = self._claims.find(Key(obj.namespace, name))
        return claim is not None and TAKEN in claim.metadata.labels

    def _address(
        self, obj: ProxmoxMachine, claim: IPAddressClaim, request: AddressRequest
    ) -> InterfaceAddress | None:
        name = claim.status.address_ref.name
        found = self._addresses.find(Key(obj.namespace, name)) if name else None
        if found is None:
            return None
        spec = found.spec
        full = 128 if ipaddress.ip_address(spec.address).version == 6 else 32
        prefix = full if spec.prefix is None else spec.prefix
        return InterfaceAddress(spec.address, prefix, spec.gateway, self._metric(obj, request))

    def _metric(self, obj: ProxmoxMachine, request: AddressRequest) -> int | None:
        if request.metric is not None:
            return request.metric
        name = request.pool.name
        pool = self._pools.find(Key(obj.namespace, name)) or self._global_pools.find(Key("", name))
        text = pool.metadata.annotations.get(METRIC_ANNOTATION, "") if pool else ""
        return int(text) if text.isdigit() else None


def _matches(claim: IPAddressClaim, request: AddressRequest) -> bool:
    ref = claim.spec.pool_ref
    return (ref.api_group, ref.kind, ref.name) == (
        request.pool.api_group,
        request.pool.kind,
        request.pool.name,
    ) and claim.metadata.deletion_timestamp is None
