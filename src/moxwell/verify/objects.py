"""
Objects against each other: machines and their owners, claims and addresses, counts. Pure.

The two sides of an address are its claim and the pool; an address that two claims got is the one
mistake here that breaks running nodes, so pools are compared across namespaces too.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from moxwell.api.capi.shared import DEPLOYMENT_NAME
from moxwell.api.ipam import IPAddress
from moxwell.api.kinds import Object
from moxwell.embedded.clusterapi.ipam import plan as ipam
from moxwell.scheduling.addresses import normal
from moxwell.verify.findings import Finding, remark, wrong
from moxwell.verify.model import World, named

OWNERS = ("Machine", "ProxmoxMachine", "Cluster", "ProxmoxCluster")


def machines(world: World) -> Iterator[Finding]:
    """Every ProxmoxMachine has its Machine, every Machine its ProxmoxMachine."""
    owners = {m.uid for m in world.owners}
    for machine in world.machines:
        ref = next((o for o in machine.metadata.owner_references if o.kind == "Machine"), None)
        if ref is None or ref.uid not in owners:
            yield wrong(
                "MachineWithoutOwner",
                named(machine),
                f"Proxmox{named(machine)} has no Machine that owns it",
                f"kubectl delete proxmoxmachine -n {machine.namespace} {machine.name}",
            )
    made = {(m.namespace, m.name) for m in world.machines}
    for owner in world.owners:
        link = owner.spec.infrastructure_ref
        if link is None or link.kind != "ProxmoxMachine" or owner.deleting:
            continue
        if (owner.namespace, link.name) not in made:
            yield wrong(
                "MachineWithoutGuestObject",
                f"machine {owner.namespace}/{owner.name}",
                f"machine {owner.namespace}/{owner.name} names a ProxmoxMachine that is not there",
                "delete the Machine: its group makes another",
            )


def counts(world: World) -> Iterator[Finding]:
    """Groups have as many machines as they ask for."""
    have: dict[tuple[str, str], int] = defaultdict(int)
    for owner in world.owners:
        if not owner.deleting:
            have[owner.namespace, owner.metadata.labels.get(DEPLOYMENT_NAME, "")] += 1
    for group in world.groups:
        wanted = 1 if group.spec.replicas is None else group.spec.replicas
        count = have[group.namespace, group.name]
        if count != wanted and not group.deleting:
            about = f"group {group.namespace}/{group.name}"
            said = f"{about} asks for {wanted} machines and has {count}"
            do = f"moxwell explain cluster {group.spec.cluster_name} --namespace {group.namespace}"
            yield remark("CountDiffers", about, said, do)


def claims(world: World) -> Iterator[Finding]:
    """Every claim and every address has an owner that is there."""
    uids = {o.uid for o in _all(world)}
    for claim in world.claims:
        refs = [o for o in claim.metadata.owner_references if o.kind in OWNERS]
        if refs and not any(o.uid in uids for o in refs) and not claim.deleting:
            yield wrong(
                "ClaimLeft",
                f"claim {claim.namespace}/{claim.name}",
                f"address claim {claim.namespace}/{claim.name} is of {refs[0].kind} "
                f"{refs[0].name}, which is gone",
                f"kubectl delete ipaddressclaim -n {claim.namespace} {claim.name}",
            )
    known = {(c.namespace, c.name) for c in world.claims}
    for address in world.addresses:
        if (address.namespace, address.spec.claim_ref.name) not in known:
            yield wrong(
                "AddressLeft",
                f"address {address.namespace}/{address.name}",
                f"address {address.spec.address} ({address.namespace}/{address.name}) has no claim",
                f"kubectl delete ipaddress -n {address.namespace} {address.name}",
            )


def _all(world: World) -> Iterable[Object]:
    yield from world.machines
    yield from world.owners
    yield from world.clusters
    yield from world.grounds


def addresses(world: World) -> Iterator[Finding]:
    """No address was given twice, and each is one of its pool's."""
    holders: dict[str, list[IPAddress]] = defaultdict(list)
    for address in world.addresses:
        holders[normal(address.spec.address)].append(address)
    for text, several in sorted(holders.items()):
        if len(several) > 1 and _compete(several):
            who = " and ".join(f"{a.namespace}/{a.spec.claim_ref.name}" for a in several)
            yield wrong(
                "AddressDoubled",
                f"address {text}",
                f"{text} was given to {who}",
                "delete one of the two machines; then make their pools not overlap",
            )
    for address in world.addresses:
        ref = address.spec.pool_ref
        space = "" if ref.kind == "GlobalInClusterIPPool" else address.namespace
        pool = world.pools.get((ref.kind, space, ref.name))
        if pool is not None and ipam.count(pool, [address.spec.address]).out_of_range:
            yield remark(
                "AddressOutsidePool",
                f"address {address.namespace}/{address.name}",
                f"{address.spec.address} is no longer among the addresses of {ref.kind} {ref.name}",
                "it stays until its machine goes; put it back into the pool to keep it",
            )


def _compete(several: list[IPAddress]) -> bool:
    """Pools of two namespaces may be two networks; one pool, or one gateway, is one network."""
    pools = {(a.namespace, a.spec.pool_ref.kind, a.spec.pool_ref.name) for a in several}
    gateways = {(a.spec.gateway, a.spec.prefix) for a in several}
    return len(pools) < len(several) or len(gateways) < len(several)
