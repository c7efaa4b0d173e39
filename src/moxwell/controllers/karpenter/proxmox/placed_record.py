"""The record of a launch: what was chosen for a node claim, with its NUMA nodes and CPUs. Pure."""

from msgspec import structs

from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.controllers.karpenter.proxmox.catalogue import disk_gib
from moxwell.controllers.karpenter.proxmox.class_hash import class_hash
from moxwell.controllers.karpenter.proxmox.instance_record import InstanceRecord
from moxwell.controllers.karpenter.proxmox.launch_choice import LaunchChoice, NoOffering
from moxwell.scheduling.guest_sizes import GuestOverhead
from moxwell.scheduling.numa import guest_options
from moxwell.scheduling.numa.placement import NoNumaPlacement
from moxwell.scheduling.resource_lists import ResourceList, quantity_text, requested


def _record(choice: LaunchChoice, node_class: ProxmoxNodeClass) -> InstanceRecord:
    zone, size = choice.candidate.zone, choice.size
    return InstanceRecord(
        instance_type=size.name,
        node_class=node_class.name,
        class_hash=class_hash(node_class),
        region=zone.key.region,
        host=zone.key.name,
        template=zone.template.vmid,
        template_host=zone.template.key.name,
        failure_domain=zone.failure_domain,
        labels=dict(choice.labels),
        capacity=_texts(choice.capacity),
        allocatable=_texts(choice.allocatable),
        cpus=size.cpus,
        memory_mib=size.guest_memory_mib,
        disk_gib=disk_gib(node_class.spec),
        overhead={
            "kube": _texts(size.overhead.kube),
            "system": _texts(size.overhead.system),
            "eviction": _texts(size.overhead.eviction),
        },
    )


def placed_record(
    choice: LaunchChoice, node_class: ProxmoxNodeClass
) -> InstanceRecord | NoOffering:
    """The record, with NUMA nodes and CPUs if the policy of the node class asks for them."""
    record, numa = _record(choice, node_class), choice.candidate.room.numa
    if numa is None:
        return record
    found = numa.place(record.cpus, record.memory_mib)
    if isinstance(found, NoNumaPlacement):
        return NoOffering(f"{choice.candidate.room.key}: {found.message}")
    return structs.replace(
        record,
        sockets=guest_options.sockets(found),
        numa_nodes=guest_options.numa_nodes(found),
        cpu_pinning=guest_options.cpu_pinning(found),
        huge_pages_mib=numa.huge_page_mib,
    )


def _texts(amounts: ResourceList) -> dict[str, str]:
    return {name: quantity_text(name, amount) for name, amount in amounts.items()}


def overhead_of(record: InstanceRecord) -> GuestOverhead:
    kube, system, eviction = map(record.overhead.get, ("kube", "system", "eviction"))
    return GuestOverhead(requested(kube), requested(system), requested(eviction))
