"""
Address claims and their answers, from caches alone.

In flow a machine, its devices and its ground; out flows which claims are missing, wrong, pending or
answered. A claim is found by its name and believed only if this machine owns it and it names the
right pool: a namesake of somebody else is waited for, not taken.
"""

import ipaddress

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.network import NetworkDevice
from moxwell.api.ipam import GlobalInClusterIPPool, InClusterIPPool, IPAddress, IPAddressClaim
from moxwell.bootstrap.network import Address
from moxwell.bootstrap.network_plan import Want, wants_of
from moxwell.controllers.infra.machine.observed import AddressesSeen
from moxwell.runtime import index
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.scheduling.zone_settings import Ground

BY_OWNER = "owner"
METRIC_NOTE = "ipam.capmox.cluster.x-k8s.io/gateway-metric"


class Pools:
    """What the IPAM providers have given."""

    def __init__(
        self,
        claims: Cache[IPAddressClaim],
        addresses: Cache[IPAddress],
        pools: Cache[InClusterIPPool],
        shared: Cache[GlobalInClusterIPPool],
    ) -> None:
        self._claims, self._addresses, self._pools, self._shared = claims, addresses, pools, shared
        claims.add_index(BY_OWNER, index.by_owner)

    def owned(self, obj: ProxmoxMachine) -> tuple[str, ...]:
        """The claims of a machine that are not given back yet; providers take their time."""
        found = self._claims.by(BY_OWNER, obj.uid)
        return tuple(claim.name for claim in found if not claim.deleting)

    def look(
        self, obj: ProxmoxMachine, devices: tuple[NetworkDevice, ...], ground: Ground
    ) -> AddressesSeen:
        """How far the addresses of a machine are."""
        wants = wants_of(obj.name, devices, ground)
        missing, wrong, pending = [], [], []
        given: dict[str, tuple[Address, ...]] = {}
        for want in wants:
            claim = self._claims.find(Key(obj.namespace, want.name))
            if claim is None:
                missing.append(want)
            elif not _right(claim, want):
                wrong.append(want.name)
            elif (address := self._answer(obj, claim, want)) is None:
                pending.append(want.name)
            else:
                given[want.device] = (*given.get(want.device, ()), address)
        names = {w.name for w in wants}
        wrong += [name for name in self.owned(obj) if name not in names]
        return AddressesSeen(wants, tuple(missing), tuple(wrong), tuple(pending), given)

    def _answer(self, obj: ProxmoxMachine, claim: IPAddressClaim, want: Want) -> Address | None:
        name = claim.status.address_ref.name
        found = self._addresses.find(Key(obj.namespace, name)) if name else None
        if found is None:
            return None
        spec = found.spec
        full = 128 if ipaddress.ip_address(spec.address).version == 6 else 32
        prefix = full if spec.prefix is None else spec.prefix
        return Address(spec.address, prefix, spec.gateway, self._metric(obj, want))

    def _metric(self, obj: ProxmoxMachine, want: Want) -> int | None:
        if want.metric is not None:
            return want.metric
        pool = self._pools.find(Key(obj.namespace, want.pool.name)) or self._shared.find(
            Key("", want.pool.name)
        )
        note = pool.metadata.annotations.get(METRIC_NOTE, "") if pool else ""
        return int(note) if note.isdigit() else None


def _right(claim: IPAddressClaim, want: Want) -> bool:
    ref = claim.spec.pool_ref
    return (ref.api_group, ref.kind, ref.name) == (
        want.pool.api_group,
        want.pool.kind,
        want.pool.name,
    ) and claim.metadata.deletion_timestamp is None
