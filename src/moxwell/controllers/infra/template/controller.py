"""``infra.template``: writes capacity and node info to the status of ProxmoxMachineTemplates."""

from typing import Any

from moxwell.api.infra.machine import ProxmoxMachineTemplate
from moxwell.controllers.infra.template.plan import ObservedTemplate, describe, query
from moxwell.controllers.infra.templates import TemplateCache, template_of
from moxwell.errors import MoxwellError
from moxwell.kube.reader import Reader
from moxwell.pve.model import ObservedGuest
from moxwell.pve.regions import Region, Regions
from moxwell.runtime.move import Done
from moxwell.runtime.reconciler import Reconciler
from moxwell.scheduling.templates import choose_templates

NAME = "infra.template"
RETRY_SECONDS = 300.0


class TemplateReconciler(
    Reconciler[ProxmoxMachineTemplate, ObservedTemplate, Done, dict[str, Any]]
):
    """Describes each ProxmoxMachineTemplate; it has no other move than Done."""

    kind = ProxmoxMachineTemplate

    def __init__(self, regions: Regions, templates: TemplateCache) -> None:
        self._regions, self._templates = regions, templates

    async def see(self, obj: ProxmoxMachineTemplate, reader: Reader) -> ObservedTemplate:
        """Find the Proxmox template in any region and read its architecture."""
        found = self._find(obj)
        if found is None:
            regions = self._visible(obj.namespace)
            silent = any(not r.inventory.health.reachable for r in regions)
            return ObservedTemplate(unreadable=silent)
        try:
            architecture = await self._templates.architecture(*found)
        except MoxwellError:
            return ObservedTemplate(found[1], unreadable=True)
        return ObservedTemplate(found[1], architecture)

    def plan(self, obj: ProxmoxMachineTemplate, seen: ObservedTemplate) -> Done:
        """Nothing to change; try again later if the architecture is not known."""
        return Done(None if seen.architecture else RETRY_SECONDS)

    async def act(self, move: Done) -> None:
        """Never called: Done has no effect."""

    def describe(
        self, obj: ProxmoxMachineTemplate, seen: ObservedTemplate, move: Done
    ) -> dict[str, Any]:
        """Compute the status; see :mod:`.plan`."""
        return describe(obj.spec.template.spec, seen)

    def _visible(self, namespace: str) -> list[Region]:
        """The configured regions and those that clusters of the namespace added."""
        prefix = f"{namespace}/"
        return [r for r in self._regions.all() if not r.owner or r.owner.startswith(prefix)]

    def _find(self, obj: ProxmoxMachineTemplate) -> tuple[Region, ObservedGuest] | None:
        """The first matching template in any region; None if there is none or it is ambiguous."""
        spec = obj.spec.template.spec
        for region in self._visible(obj.namespace):
            known = {t.vmid: t for t in region.inventory.view.templates}
            try:
                templates = [template_of(region.name, t) for t in known.values()]
                return region, known[choose_templates(query(spec), templates)[0].vmid]
            except MoxwellError:
                continue
        return None
