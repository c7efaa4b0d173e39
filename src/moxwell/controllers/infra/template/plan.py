"""
Decides what a node from a ProxmoxMachineTemplate offers, so that an autoscaler can scale from zero.

Pure. CPU and memory are those of the spec, else of the Proxmox template; the disk is the boot
volume.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from moxwell.api.infra.machine import (
    NodeInfo,
    ProxmoxMachineSpec,
    ProxmoxMachineTemplateStatus,
)
from moxwell.pve.model import ObservedGuest
from moxwell.scheduling.inventory_model import GIB, MIB
from moxwell.scheduling.templates import TemplateQuery

DEFAULT_ARCHITECTURE = "amd64"


@dataclass(frozen=True, slots=True)
class ObservedTemplate:
    """The Proxmox template that the spec names, if it is found, and its architecture."""

    guest: ObservedGuest | None = None
    architecture: str = ""  # empty: not known
    unreadable: bool = False  # it exists, or may exist, but Proxmox does not answer


def query(spec: ProxmoxMachineSpec) -> TemplateQuery:
    """How the spec names its template."""
    selector = spec.template_selector
    return TemplateQuery(
        spec.template_id or 0,
        spec.source_node or "",
        spec.template_name or "",
        frozenset(selector.match_tags) if selector else frozenset(),
        (selector.match_policy if selector else None) or "exact",
    )


def describe(spec: ProxmoxMachineSpec, seen: ObservedTemplate) -> dict[str, Any]:
    """The status; the node info is left as it is while the template cannot be read."""
    status = capacity(spec, seen.guest, seen.architecture)
    fields: dict[str, Any] = dict.fromkeys(status.__struct_encode_fields__) | msgspec.to_builtins(
        status
    )
    del fields["conditions"]
    if seen.unreadable:
        del fields["nodeInfo"]
    return fields


def capacity(
    spec: ProxmoxMachineSpec, template: ObservedGuest | None, architecture: str = ""
) -> ProxmoxMachineTemplateStatus:
    """What a node offers; an unknown architecture is ``amd64``, as on nearly every host."""
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
    return ProxmoxMachineTemplateStatus(
        capacity={name: amount for name, amount in found.items() if amount},
        node_info=NodeInfo(
            architecture=architecture or DEFAULT_ARCHITECTURE, operating_system="linux"
        ),
    )
