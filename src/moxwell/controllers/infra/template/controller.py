"""The loop over machine templates: it writes status and nothing else."""

from collections.abc import Sequence

from moxwell.api.infra.machine import MachineSpec, MachineTemplateStatus, ProxmoxMachineTemplate
from moxwell.controllers.infra import templates as moulds
from moxwell.controllers.infra.template.plan import capacity
from moxwell.controllers.infra.templates import Moulds
from moxwell.errors import MoxwellError
from moxwell.pve.model import GuestSeen
from moxwell.pve.regions import Region, Regions
from moxwell.runtime.reconciler import Outcome
from moxwell.runtime.watches import Watch
from moxwell.scheduling.templates import Want, choose_templates

NAME = "infra.template"
RESYNC_SECONDS = 300.0


class TemplateReconciler:
    """Capacity and node info of each ProxmoxMachineTemplate."""

    kind = ProxmoxMachineTemplate
    finalizer = ""
    watches: Sequence[Watch] = ()

    def __init__(self, regions: Regions, moulds: Moulds) -> None:
        self._regions, self._moulds = regions, moulds

    async def reconcile(self, obj: ProxmoxMachineTemplate) -> Outcome[MachineTemplateStatus]:
        """One look."""
        spec = obj.spec.template.spec
        found = self._find(spec)
        known = obj.status.node_info.architecture if obj.status.node_info else ""
        now = await self._architecture(*found) if found else ""
        status = capacity(spec, found[1] if found else None, now or known)
        return Outcome(status, again=None if now else RESYNC_SECONDS)

    async def _architecture(self, region: Region, template: GuestSeen) -> str:
        try:
            return await self._moulds.architecture(region, template)
        except MoxwellError:
            return ""  # it cannot be read now

    def _find(self, spec: MachineSpec) -> tuple[Region, GuestSeen] | None:
        """The Proxmox template, in any region; None where it is not to be told which."""
        selector = spec.template_selector
        want = Want(
            spec.template_id or 0,
            spec.source_node or "",
            spec.template_name or "",
            frozenset(selector.match_tags) if selector else frozenset(),
            (selector.match_policy if selector else None) or "exact",
        )
        for region in self._regions.values():
            seen = {t.vmid: t for t in region.inventory.view.templates}
            try:
                bare = [moulds.bare(region.name, t) for t in seen.values()]
                return region, seen[choose_templates(want, bare)[0].vmid]
            except MoxwellError:
                continue
        return None
