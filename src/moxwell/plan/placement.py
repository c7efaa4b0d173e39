"""
Where the machines of a plan land, and the addresses they are likely to get.

In flow a group as it will be; out flow rows: a new machine with host and address, or one that
leaves. Groups change one after the other (``tenancy/cluster/turns.py``), so each sees the machines
that came and went with those before it. Addresses are taken as the in-cluster IPAM provider
takes them, the first free one; another provider may choose otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.capi.shared import CLUSTER_NAME, DEPLOYMENT_NAME, SET_NAME, TEMPLATE_HASH
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineTemplate
from moxwell.api.infra.network import PoolRef
from moxwell.api.ipam import GlobalInClusterIPPool, InClusterIPPool, IPAddress, PoolSpec
from moxwell.api.meta import ObjectMeta
from moxwell.bootstrap.network_plan import devices_of, wants_of
from moxwell.controllers.infra.machine.explain import Explainer
from moxwell.controllers.infra.zone_defaults import cluster_name
from moxwell.controllers.tenancy.cluster.diff import GroupChange
from moxwell.embedded.clusterapi.ipam import plan as ipam
from moxwell.embedded.clusterapi.machinedeployment import plan as deployments
from moxwell.embedded.clusterapi.machineset.plan import member
from moxwell.kube.client import Kube
from moxwell.pve.regions import Regions
from moxwell.scheduling import rollout, simulate
from moxwell.scheduling.inventory_model import MIB, Flight, HostKey
from moxwell.scheduling.placement import Placement
from moxwell.scheduling.zone_settings import ground_of, made_pools

Json = dict[str, Any]
PAPER = "paper"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A group as it will be, and what it has now."""

    change: GroupChange
    group: MachineDeployment
    template: ProxmoxMachineTemplate
    ground: ProxmoxCluster
    sets: tuple[MachineSet, ...]


class Landing:
    """Plays groups forward."""

    def __init__(self, kube: Kube, explainer: Explainer, regions: Regions) -> None:
        self._kube, self._explainer, self._regions = kube, explainer, regions
        self._flights: list[Flight] = []
        self._gone: list[simulate.Old] = []
        self._given: dict[tuple[str, str], set[str]] = {}  # pool -> addresses on paper

    def begin(self) -> None:
        """Forget the last plan."""
        self._flights, self._gone, self._given = [], [], {}

    async def land(self, wanted: Wanted) -> list[Json]:
        """The machines of a group that come and go, in that order of events."""
        old, new = await self._there(wanted)
        if not wanted.change.rolls and wanted.change.made == 0:
            return await self.leave(wanted.group, old[: wanted.change.removed])
        obj = _paper(wanted)
        spec = wanted.group.spec.template.spec
        survey = await self._explainer.survey(
            obj, wanted.ground, zone=spec.failure_domain, version=spec.version
        )
        survey = replace(survey, flights=(*survey.flights, *self._flights))
        for gone in self._gone:
            survey = simulate.without(survey, gone)
        policy = deployments.policy(wanted.group)
        events = simulate.foresee(survey, policy, old=old if wanted.change.rolls else (), new=new)
        return [await self._row(wanted, obj, survey, event) for event in events]

    async def leave(self, group: MachineDeployment, leaving: Sequence[simulate.Old]) -> list[Json]:
        """Machines that go, and make room for whoever comes after them."""
        for one in leaving:
            self._gone.append(one)
            await self._give_back(group.namespace, one.name)
        return [_leaver(group.name, one) for one in leaving]

    async def land_gone(self, group: MachineDeployment) -> list[Json]:
        """All machines of a group that is taken away."""
        labels = {DEPLOYMENT_NAME: group.name}
        machines = (await self._kube.list(Machine, group.namespace, labels=labels)).items
        names = sorted(m.name for m in machines)
        return await self.leave(group, [await self._old(group.namespace, n) for n in names])

    async def _there(self, wanted: Wanted) -> tuple[list[simulate.Old], int]:
        """Who may leave, in that order; and how many of the new template there are."""
        short = deployments.template_hash(wanted.group)
        labels = {DEPLOYMENT_NAME: wanted.group.name}
        machines = (await self._kube.list(Machine, wanted.group.namespace, labels=labels)).items
        old: list[simulate.Old] = []
        new = 0
        for fleet in sorted(
            wanted.sets, key=lambda s: (str(s.metadata.creation_timestamp), s.name)
        ):
            mine = [m for m in machines if m.metadata.labels.get(SET_NAME) == fleet.name]
            current = fleet.metadata.labels.get(TEMPLATE_HASH) == short
            if current:
                new = len(mine)
            if current == wanted.change.rolls:
                continue  # growing and shrinking is about the current ones, rolling about others
            order = rollout.choose_leaving(map(member, mine), len(mine))
            old += [await self._old(wanted.group.namespace, name) for name in order]
        return old, new

    async def _old(self, namespace: str, name: str) -> simulate.Old:
        found = await self._kube.find(ProxmoxMachine, name, namespace)
        claim = found.spec.claim if found else None
        if found is None or claim is None or not found.spec.region:
            return simulate.Old(name, None)
        region = self._regions.find(found.spec.region)
        guest = region.inventory.find(found.spec.virtual_machine_id or 0) if region else None
        return simulate.Old(
            name,
            HostKey(found.spec.region, claim.host),
            claim.zone,
            int(guest.cpus) if guest else (found.spec.num_cores or 1),
            guest.memory_bytes if guest else (found.spec.memory_mib or 0) * MIB,
        )

    async def _row(
        self, wanted: Wanted, obj: ProxmoxMachine, survey: simulate.Survey, event: simulate.Event
    ) -> Json:
        if isinstance(event, simulate.Old):
            (row,) = await self.leave(wanted.group, [event])
            return row
        if event.chosen is not None:
            one = simulate.with_one_more(replace(survey, flights=()), event)
            self._flights += one.flights
        return {
            "how": "make",
            "group": wanted.change.name,
            "name": "",
            "region": event.chosen.key.region if event.chosen else "",
            "host": event.chosen.key.name if event.chosen else "",
            "addresses": await self._addresses(wanted, obj, event),
            "why_not": "" if event.chosen else event.sentence(),
        }

    # Addresses

    async def _addresses(self, wanted: Wanted, obj: ProxmoxMachine, event: Placement) -> list[str]:
        if event.chosen is None:
            return []
        name, spec = cluster_name(wanted.ground), wanted.ground.spec
        zone = event.chosen.zone if spec.zone_config else ""
        ground = ground_of(name, spec, zone)
        wants = wants_of(PAPER, devices_of(obj.spec, {}), ground)
        found = [await self._address(wanted, want.pool) for want in wants]
        return [address for address in found if address] or (["by DHCP"] if not wants else [])

    async def _address(self, wanted: Wanted, ref: PoolRef) -> str:
        space = wanted.group.namespace
        spec = await self._pool(wanted, ref, space)
        if spec is None:
            return ""
        taken = await self._taken(ref, space)
        address = ipam.choose(spec, taken)
        if address is not None:
            taken.add(address)
        return address or f"none: {ref.kind} {ref.name} is exhausted"

    async def _pool(self, wanted: Wanted, ref: PoolRef, space: str) -> PoolSpec | None:
        shared = ref.kind == "GlobalInClusterIPPool"
        kind: Any = GlobalInClusterIPPool if shared else InClusterIPPool
        found = await self._kube.find(kind, ref.name, "" if shared else space)
        if found is not None:
            spec: PoolSpec = found.spec
            return spec
        made = made_pools(cluster_name(wanted.ground), wanted.ground.spec)
        config = next((m.config for m in made if m.name == ref.name), None)
        if config is None:
            return None
        return PoolSpec(addresses=config.addresses, prefix=config.prefix, gateway=config.gateway)

    async def _taken(self, ref: PoolRef, space: str) -> set[str]:
        key = (ref.kind, ref.name)
        if key not in self._given:
            where = "" if ref.kind == "GlobalInClusterIPPool" else space
            page = await self._kube.list(IPAddress, where)
            rows = [a.spec for a in page.items if _same(a.spec.pool_ref, ref)]
            self._given[key] = {r.address for r in rows}
        return self._given[key]

    async def _give_back(self, namespace: str, machine: str) -> None:
        page = await self._kube.list(IPAddress, namespace)
        for address in page.items:
            if address.spec.claim_ref.name.startswith(f"{machine}-net"):
                ref = address.spec.pool_ref
                pool = PoolRef(api_group=ref.api_group, kind=ref.kind, name=ref.name)
                (await self._taken(pool, namespace)).discard(address.spec.address)


def _same(one: Any, two: PoolRef) -> bool:
    return bool((one.kind, one.name) == (two.kind, two.name))


def _paper(wanted: Wanted) -> ProxmoxMachine:
    """A machine of the group that exists only on paper."""
    labels = {
        CLUSTER_NAME: wanted.group.spec.cluster_name,
        DEPLOYMENT_NAME: wanted.group.name,
    }
    meta = ObjectMeta(name=PAPER, namespace=wanted.group.namespace, uid=PAPER, labels=labels)
    return ProxmoxMachine(metadata=meta, spec=wanted.template.spec.template.spec)


def _leaver(group: str, one: simulate.Old) -> Json:
    return {
        "how": "delete",
        "group": group,
        "name": one.name,
        "region": one.key.region if one.key else "",
        "host": one.key.name if one.key else "",
        "addresses": [],
        "why_not": "",
    }
