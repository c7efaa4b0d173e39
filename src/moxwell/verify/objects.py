"""
Compares objects with each other: machines and owners, replicas, address claims, addresses. Pure.

An address that two claims got breaks running nodes, so pools of all namespaces are compared.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from moxwell.api.capi.shared import DEPLOYMENT_NAME
from moxwell.api.ipam import IPAddress
from moxwell.api.kinds import Object
from moxwell.scheduling import ip_pools
from moxwell.scheduling.addresses import normal
from moxwell.verify.findings import Finding, remark, wrong
from moxwell.verify.model import Observation, describe

OWNERS = ("Machine", "ProxmoxMachine", "Cluster", "ProxmoxCluster")


def machines(observation: Observation) -> Iterator[Finding]:
    """Every ProxmoxMachine has its Machine, every Machine its ProxmoxMachine."""
    owners = {m.uid for m in observation.capi_machines}
    for machine in observation.machines:
        ref = next((o for o in machine.metadata.owner_references if o.kind == "Machine"), None)
        if ref is None or ref.uid not in owners:
            yield wrong(
                "MachineWithoutOwner",
                describe(machine),
                f"Proxmox{describe(machine)} has no Machine that owns it",
                f"kubectl delete proxmoxmachine -n {machine.namespace} {machine.name}",
            )
    existing = {(m.namespace, m.name) for m in observation.machines}
    for owner in observation.capi_machines:
        link = owner.spec.infrastructure_ref
        if link is None or link.kind != "ProxmoxMachine" or owner.deleting:
            continue
        if (owner.namespace, link.name) not in existing:
            yield wrong(
                "ProxmoxMachineMissing",
                f"machine {owner.namespace}/{owner.name}",
                f"the ProxmoxMachine of machine {owner.namespace}/{owner.name} does not exist",
                "delete the Machine: its MachineSet replaces it",
            )


def counts(observation: Observation) -> Iterator[Finding]:
    """Node groups have as many machines as replicas."""
    have: dict[tuple[str, str], int] = defaultdict(int)
    for owner in observation.capi_machines:
        if not owner.deleting:
            have[owner.namespace, owner.metadata.labels.get(DEPLOYMENT_NAME, "")] += 1
    for group in observation.groups:
        wanted = 1 if group.spec.replicas is None else group.spec.replicas
        count = have[group.namespace, group.name]
        if count != wanted and not group.deleting:
            about = f"node group {group.namespace}/{group.name}"
            message = f"{about} has {count} machines, its spec {wanted}"
            do = f"moxwell explain cluster {group.spec.cluster_name} --namespace {group.namespace}"
            yield remark("ReplicasDiffer", about, message, do)


def claims(observation: Observation) -> Iterator[Finding]:
    """Every claim and every address has an existing owner."""
    uids = {o.uid for o in _all(observation)}
    for claim in observation.claims:
        refs = [o for o in claim.metadata.owner_references if o.kind in OWNERS]
        if refs and not any(o.uid in uids for o in refs) and not claim.deleting:
            yield wrong(
                "OrphanedClaim",
                f"claim {claim.namespace}/{claim.name}",
                f"address claim {claim.namespace}/{claim.name} belongs to {refs[0].kind} "
                f"{refs[0].name}, which does not exist",
                f"kubectl delete ipaddressclaim -n {claim.namespace} {claim.name}",
            )
    known = {(c.namespace, c.name) for c in observation.claims}
    for address in observation.addresses:
        if (address.namespace, address.spec.claim_ref.name) not in known:
            yield wrong(
                "OrphanedAddress",
                f"address {address.namespace}/{address.name}",
                f"address {address.spec.address} ({address.namespace}/{address.name}) has no claim",
                f"kubectl delete ipaddress -n {address.namespace} {address.name}",
            )


def _all(observation: Observation) -> Iterable[Object]:
    yield from observation.machines
    yield from observation.capi_machines
    yield from observation.clusters
    yield from observation.proxmox_clusters


def addresses(observation: Observation) -> Iterator[Finding]:
    """No address is allocated twice, and each is in its pool."""
    holders: dict[str, list[IPAddress]] = defaultdict(list)
    for address in observation.addresses:
        holders[normal(address.spec.address)].append(address)
    for text, several in sorted(holders.items()):
        if len(several) > 1 and _same_network(several):
            who = " and ".join(f"{a.namespace}/{a.spec.claim_ref.name}" for a in several)
            yield wrong(
                "DuplicateAddress",
                f"address {text}",
                f"{text} is allocated to {who}",
                "delete one of the machines, then change the pools so that they do not overlap",
            )
    for address in observation.addresses:
        ref = address.spec.pool_ref
        space = "" if ref.kind == "GlobalInClusterIPPool" else address.namespace
        pool = observation.pools.get((ref.kind, space, ref.name))
        if pool is not None and ip_pools.usage(pool, [address.spec.address]).out_of_range:
            yield remark(
                "AddressOutsidePool",
                f"address {address.namespace}/{address.name}",
                f"{address.spec.address} is not in {ref.kind} {ref.name}",
                "its machine keeps it until it is deleted; add it to the pool to keep it in use",
            )


def _same_network(several: list[IPAddress]) -> bool:
    """Whether addresses share a pool or a gateway; else their pools may be separate networks."""
    pools = {(a.namespace, a.spec.pool_ref.kind, a.spec.pool_ref.name) for a in several}
    gateways = {(a.spec.gateway, a.spec.prefix) for a in several}
    return len(pools) < len(several) or len(gateways) < len(several)
