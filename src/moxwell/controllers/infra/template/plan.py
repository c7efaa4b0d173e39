"""
Capacity of machines that do not exist yet, so that an autoscaler can scale from zero. Pure.

CPU and memory as the spec says, else as the Proxmox template has them; disk as the boot volume.
"""

from moxwell.api.infra.machine import MachineSpec, MachineTemplateStatus, NodeInfo
from moxwell.pve.model import GuestSeen
from moxwell.scheduling.inventory_model import GIB, MIB

USUAL = "amd64"


def capacity(
    spec: MachineSpec, template: GuestSeen | None, architecture: str = ""
) -> MachineTemplateStatus:
    """What a node from this template will offer; nearly every host of Proxmox is ``amd64``."""
    cores = (spec.num_cores or 0) * (spec.num_sockets or 1)
    cpus = cores or (int(template.cpus) if template else 0)
    memory = (spec.memory_mib or 0) * MIB or (template.memory_bytes if template else 0)
    boot = spec.disks.boot_volume.size_gb * GIB if spec.disks and spec.disks.boot_volume else 0
    disk = boot or (template.disk_bytes if template else 0)
    found = {
        "cpu": str(cpus) if cpus else "",
        "memory": f"{memory // MIB}Mi" if memory else "",
        "ephemeral-storage": f"{disk // GIB}Gi" if disk >= GIB else "",
    }
    return MachineTemplateStatus(
        capacity={name: amount for name, amount in found.items() if amount},
        node_info=NodeInfo(architecture=architecture or USUAL, operating_system="linux"),
    )
