"""
Decides whether a guest belongs to a machine, and whether a machine may adopt it. Pure.

Users write the providerID, and on a Kubernetes without our admission also the claim. So neither is
enough: the guest must be bound to the namespace and cluster of the machine, or the operator must
allow the adoption, by a tag on the guest or in the configuration.
"""

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.bootstrap.bootstrap_data import SCHEME
from moxwell.controllers.infra.guest_names import mark_of
from moxwell.pve import ownership
from moxwell.pve.guests import GuestConfig

Claimants = Callable[[str], Iterable[ProxmoxMachine]]  # machines whose claim has an owner key


def _no_claimants(key: str) -> Iterable[ProxmoxMachine]:
    return ()


class GuestAdoption:
    """The rule, with the clusters that the operator lets adopt guests by providerID."""

    def __init__(
        self, clusters: tuple[str, ...] = (), claimants: Claimants = _no_claimants
    ) -> None:
        """``clusters`` are patterns of ``namespace/cluster``."""
        self._clusters, self._claimants = clusters, claimants

    def is_ours(self, obj: ProxmoxMachine, config: GuestConfig) -> bool:
        """Return whether the guest belongs to the machine, or the machine may adopt it."""
        mark, owner = mark_of(obj), ownership.owner_key(config)
        if owner == mark.key:
            bound = ownership.binding_key(config)
            if bound == mark.cluster_key:
                return True
            if bound is None and obj.spec.claim is not None and self._is_only_claimant(obj):
                return True  # an earlier version created the guest
        elif owner is not None and not self._is_tagged(obj, config):
            return False
        if _has_uuid(obj, config.uuid):
            return self._is_allowed(obj, config, owner)
        return _has_vmid(obj) and self._is_tagged(obj, config)  # a VMID can be guessed: only by tag

    def _is_only_claimant(self, obj: ProxmoxMachine) -> bool:
        """Return whether no machine of another cluster has the same claim."""
        mark = mark_of(obj)
        return all(mark_of(other).cluster == mark.cluster for other in self._claimants(mark.key))

    def _is_allowed(self, obj: ProxmoxMachine, config: GuestConfig, owner: str | None) -> bool:
        if self._is_tagged(obj, config):
            return True
        cluster = mark_of(obj).cluster
        return owner is None and any(fnmatchcase(cluster, each) for each in self._clusters)

    def _is_tagged(self, obj: ProxmoxMachine, config: GuestConfig) -> bool:
        return mark_of(obj).adopt_tag in (tag.lower() for tag in config.tags)


def _has_vmid(obj: ProxmoxMachine) -> bool:
    """Return whether the providerID is the region and VMID, as karpenter-provider-proxmox has."""
    spec = obj.spec
    return spec.provider_id == f"{SCHEME}{spec.region}/{spec.virtual_machine_id}"


def _has_uuid(obj: ProxmoxMachine, uuid: str) -> bool:
    """Return whether the guest has the UUID that the providerID names, as CAPMOX writes it."""
    return bool(uuid) and obj.spec.provider_id.lower() == SCHEME + uuid
