"""``karpenter.unmanagedtemplate``: finds templates that somebody else made, by name or tags."""

from enum import StrEnum
from typing import Any

from moxwell.api.conditions import Condition
from moxwell.api.karpenter.proxmox_templates import (
    ProxmoxTemplateStatus,
    ProxmoxUnmanagedTemplate,
)
from moxwell.controllers.karpenter.proxmox.class_reader import NodeClassReader
from moxwell.kube.reader import Reader
from moxwell.runtime.move import Done
from moxwell.runtime.reconciler import Reconciler
from moxwell.scheduling.inventory_model import Template

NAME = "karpenter.unmanagedtemplate"
RESCAN_SECONDS = 60.0
CONDITIONS = ("Ready", "ProxmoxVirtualMachineTemplateReady")
Found = tuple[Template, ...]


class UnmanagedTemplateReason(StrEnum):
    """Reasons of the conditions of a ProxmoxUnmanagedTemplate."""

    READY = "Ready"
    TEMPLATE_NOT_FOUND = "TemplateNotFound"


class UnmanagedTemplateController(
    Reconciler[ProxmoxUnmanagedTemplate, Found, Done, ProxmoxTemplateStatus]
):
    """Reports the templates that match; it writes nothing else."""

    kind = ProxmoxUnmanagedTemplate

    def __init__(self, reader: NodeClassReader) -> None:
        self._reader = reader

    async def see(self, obj: ProxmoxUnmanagedTemplate, reader: Reader) -> Found:
        return self._reader.templates(obj)

    def plan(self, obj: ProxmoxUnmanagedTemplate, seen: Found) -> Done:
        return Done(RESCAN_SECONDS)

    async def act(self, move: Done) -> Any:
        return None

    def describe(
        self, obj: ProxmoxUnmanagedTemplate, seen: Found, move: Done
    ) -> ProxmoxTemplateStatus:
        return describe(obj, seen)


def describe(obj: ProxmoxUnmanagedTemplate, found: Found) -> ProxmoxTemplateStatus:
    """The matching templates, and whether there is one."""
    reason = UnmanagedTemplateReason.READY if found else UnmanagedTemplateReason.TEMPLATE_NOT_FOUND
    message = "" if found else "no template that the cluster may use has this name and these tags"
    zones = tuple(f"{t.key}/{t.vmid}" for t in found)
    return ProxmoxTemplateStatus(
        conditions=tuple(
            Condition(
                type=type_,
                status="True" if found else "False",
                reason=reason,
                message=message,
                observed_generation=obj.metadata.generation,
            )
            for type_ in CONDITIONS
        ),
        resources={"zones": str(len(zones))},
        zones=zones,
    )
