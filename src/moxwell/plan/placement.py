"""
Which hosts and addresses the machines of a plan get, and which machines are deleted. Reads only.

Placement is simulated with the code of the infrastructure controller. Node groups change one after
the other (``controllers/tenancy/cluster/rollout_order.py``), so each group finds the hosts as the
groups before it leave them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.capi.shared import CLUSTER_NAME, DEPLOYMENT_NAME, SET_NAME, TEMPLATE_HASH
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineTemplate
from moxwell.api.infra.zone_settings import zone_settings_of
from moxwell.api.meta import ObjectMeta
from moxwell.bootstrap.network_plan import address_requests, devices_of
from moxwell.controllers.infra.machine.explain import Explainer
from moxwell.controllers.infra.zone_defaults import cluster_name
from moxwell.controllers.tenancy.cluster.diff import NodeGroupChange
from moxwell.kube.reader import Reader
from moxwell.plan.address_preview import AddressPreview
from moxwell.plan.report import MachineChange
from moxwell.pve.regions import Regions
from moxwell.scheduling import rollout, simulate
from moxwell.scheduling.inventory_model import MIB, CandidateHost, HostKey, PendingGuest
from moxwell.scheduling.machine_rollout import deletion_candidate, rollout_policy, template_hash
from moxwell.scheduling.placement_model import Placement

NEW_MACHINE = "new-machine"  # name of the machine whose placement is simulated


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredGroup:
    """A node group as it will be, and its existing MachineSets."""

    change: NodeGroupChange
    deployment: MachineDeployment
    template: ProxmoxMachineTemplate
    cluster: ProxmoxCluster
    sets: tuple[MachineSet, ...]
    firewall_groups: frozenset[str] = frozenset()  # that exist before its machines do


class PlacementPreview:
    """
    Simulates one group after the other; one object for each plan.

    Clusters of one plan are simulated in the order of the file. Their controllers work at the same
    time, so which of two clusters gets the better host may differ; what does not fit does not.
    """

    def __init__(self, reader: Reader, explainer: Explainer, regions: Regions) -> None:
        self._reader, self._explainer, self.regions = reader, explainer, regions
        self._addresses = AddressPreview(reader)
        self._placed: list[PendingGuest] = []
        self._deleted: list[simulate.LeavingMachine] = []

    async def change_group(self, group: DesiredGroup) -> list[MachineChange]:
        """The machines of a group that are created and deleted, in the order of events."""
        old, new = await self._existing(group)
        if not group.change.rolls and group.change.created == 0:
            return await self._delete(group.deployment, old[: group.change.deleted])
        machine, spec = _new_machine(group), group.deployment.spec.template.spec
        survey = await self._explainer.placement_input(
            machine, group.cluster, zone=spec.failure_domain, version=spec.version
        )
        survey = _with_groups(survey, group.firewall_groups)
        survey = replace(survey, pending=(*survey.pending, *self._placed))
        for deleted in self._deleted:
            survey = simulate.without_machine(survey, deleted)
        policy = rollout_policy(group.deployment)
        leaving = old if group.change.rolls else ()
        events = simulate.simulate_rollout(survey, policy, old=leaving, new=new)
        return [await self._event(group, machine, survey, event) for event in events]

    async def delete_group(self, deployment: MachineDeployment) -> list[MachineChange]:
        """All machines of a group that is deleted."""
        labels = {DEPLOYMENT_NAME: deployment.name}
        machines = (await self._reader.list(Machine, deployment.namespace, labels=labels)).items
        names = sorted(m.name for m in machines)
        leaving = [await self._leaving(deployment.namespace, name) for name in names]
        return await self._delete(deployment, leaving)

    async def _delete(
        self, deployment: MachineDeployment, leaving: Sequence[simulate.LeavingMachine]
    ) -> list[MachineChange]:
        """Free the capacity and the addresses of machines."""
        for machine in leaving:
            self._deleted.append(machine)
            await self._addresses.release(deployment.namespace, machine.name)
        return [_deletion(deployment.name, machine) for machine in leaving]

    async def _existing(self, group: DesiredGroup) -> tuple[list[simulate.LeavingMachine], int]:
        """Machines that may be deleted, in that order; and how many have the new template."""
        current_hash, namespace = template_hash(group.deployment), group.deployment.namespace
        labels = {DEPLOYMENT_NAME: group.deployment.name}
        machines = (await self._reader.list(Machine, namespace, labels=labels)).items
        old: list[simulate.LeavingMachine] = []
        new = 0
        for each in sorted(group.sets, key=lambda s: (str(s.metadata.creation_timestamp), s.name)):
            mine = [m for m in machines if m.metadata.labels.get(SET_NAME) == each.name]
            current = each.metadata.labels.get(TEMPLATE_HASH) == current_hash
            if current:
                new = len(mine)
            if current == group.change.rolls:
                continue  # scaling deletes machines of the current set, a rollout those of others
            order = rollout.choose_deletions(map(deletion_candidate, mine), len(mine))
            old += [await self._leaving(namespace, name) for name in order]
        return old, new

    async def _leaving(self, namespace: str, name: str) -> simulate.LeavingMachine:
        found = await self._reader.find(ProxmoxMachine, name, namespace)
        claim = found.spec.claim if found else None
        if found is None or claim is None or not found.spec.region:
            return simulate.LeavingMachine(name, None)
        region = self.regions.find(found.spec.region)
        guest = region.inventory.find(found.spec.virtual_machine_id or 0) if region else None
        return simulate.LeavingMachine(
            name,
            HostKey(found.spec.region, claim.host),
            claim.zone,
            int(guest.cpus) if guest else (found.spec.num_cores or 1),
            guest.memory_bytes if guest else (found.spec.memory_mib or 0) * MIB,
        )

    async def _event(
        self,
        group: DesiredGroup,
        machine: ProxmoxMachine,
        survey: simulate.PlacementInput,
        event: simulate.SimulatedEvent,
    ) -> MachineChange:
        if isinstance(event, simulate.LeavingMachine):
            (row,) = await self._delete(group.deployment, [event])
            return row
        if event.chosen is not None:
            after = simulate.with_machine(replace(survey, pending=()), event)
            self._placed += after.pending
        return MachineChange(
            action="create",
            group=group.change.name,
            region=event.chosen.key.region if event.chosen else "",
            host=event.chosen.key.name if event.chosen else "",
            addresses=await self._addresses_of(group, machine, event),
            why_not="" if event.chosen else event.sentence(),
        )

    async def _addresses_of(
        self, group: DesiredGroup, machine: ProxmoxMachine, event: Placement
    ) -> tuple[str, ...]:
        if event.chosen is None:
            return ()
        name, spec = cluster_name(group.cluster), group.cluster.spec
        settings = zone_settings_of(name, spec, event.chosen.zone if spec.zone_config else "")
        wants = address_requests(NEW_MACHINE, devices_of(machine.spec, {}), settings)
        namespace = group.deployment.namespace
        found = [
            await self._addresses.allocate(group.cluster, namespace, want.pool) for want in wants
        ]
        return tuple(a for a in found if a) or (() if wants else ("by DHCP",))


def _with_groups(
    survey: simulate.PlacementInput, groups: frozenset[str]
) -> simulate.PlacementInput:
    """The hosts with security groups that the controller of the tenant creates before."""

    def extended(host: CandidateHost) -> CandidateHost:
        known = host.capabilities.firewall_groups
        if known is None:
            return host
        return replace(
            host, capabilities=replace(host.capabilities, firewall_groups=known | groups)
        )

    return replace(survey, hosts=tuple(extended(host) for host in survey.hosts))


def _new_machine(group: DesiredGroup) -> ProxmoxMachine:
    """A machine of the group that does not exist."""
    labels = {
        CLUSTER_NAME: group.deployment.spec.cluster_name,
        DEPLOYMENT_NAME: group.deployment.name,
    }
    meta = ObjectMeta(
        name=NEW_MACHINE, namespace=group.deployment.namespace, uid=NEW_MACHINE, labels=labels
    )
    return ProxmoxMachine(metadata=meta, spec=group.template.spec.template.spec)


def _deletion(group: str, machine: simulate.LeavingMachine) -> MachineChange:
    return MachineChange(
        action="delete",
        group=group,
        name=machine.name,
        region=machine.key.region if machine.key else "",
        host=machine.key.name if machine.key else "",
    )
