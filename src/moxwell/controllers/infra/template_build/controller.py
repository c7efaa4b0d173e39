"""
``infra.templatebuild``: makes the copies of ProxmoxTemplates in the configured regions.

It uses the plan of ``moxwell template``, one move per pass. Copies that the spec replaced, and all
copies of a deleted object, are removed when no linked clone uses them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from moxwell.api.karpenter.proxmox import PROVIDER_GROUP
from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate, ProxmoxTemplateStatus
from moxwell.controllers.infra.task_backoff import TaskBackoff
from moxwell.controllers.infra.template_build.describe import (
    ObservedTemplateRegions,
    RegionMove,
    TemplateMove,
    describe_template,
    plan_template,
)
from moxwell.controllers.infra.template_build.from_spec import design_of_object
from moxwell.controllers.infra.template_build.observed import ObservedBuild
from moxwell.controllers.infra.template_build.see import observe
from moxwell.errors import Invalid, Unreachable
from moxwell.kube.reader import Reader
from moxwell.pve.regions import Region, Regions
from moxwell.pve.steps import CreateGuest, Destroy, MakeTemplate
from moxwell.pve.tasks import TaskEnded
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note, Reconciler

NAME = "infra.templatebuild"
FINALIZER = f"{PROVIDER_GROUP}/termination"


@dataclass(frozen=True, slots=True)
class TemplateTask:
    """The owner of a task: the ProxmoxTemplate of this name."""

    name: str


class TemplateBuildReconciler(
    Reconciler[ProxmoxTemplate, ObservedTemplateRegions, TemplateMove, ProxmoxTemplateStatus]
):
    """One template in each region of a ProxmoxTemplate, or in all configured regions."""

    kind = ProxmoxTemplate
    finalizer = FINALIZER

    def __init__(self, regions: Regions, backoff: TaskBackoff) -> None:
        self._regions, self._backoff = regions, backoff

    def listen(self, wake: Callable[[Key], None]) -> None:
        """Enqueue a ProxmoxTemplate when one of its tasks ends."""

        def on_task(ended: TaskEnded) -> None:
            if isinstance(ended.owner, TemplateTask):
                if ended.ok:
                    self._backoff.forget(ended.owner)
                self._backoff.task_ended(ended)
                wake(Key("", ended.owner.name))

        self._regions.subscribe_tasks(on_task)

    async def see(self, obj: ProxmoxTemplate, reader: Reader) -> ObservedTemplateRegions:
        """Read the regions that answer."""
        wanted = obj.spec.region or ""
        regions = [r for r in self._regions.values() if wanted in ("", r.name)]
        builds: dict[str, ObservedBuild] = {}
        silent: list[str] = []
        for region in regions:
            build = await self._see_region(obj, region)
            if build is None:
                silent.append(region.name)
            else:
                builds[region.name] = build
        owner = TemplateTask(obj.name)
        return ObservedTemplateRegions(
            builds,
            tuple(silent),
            wanted if wanted and not regions else "",
            self._backoff.find(owner),
            self._backoff.seconds_left(owner),
        )

    async def _see_region(self, obj: ProxmoxTemplate, region: Region) -> ObservedBuild | None:
        """The region for the plan; None if it does not answer."""
        if not region.inventory.synced or not region.inventory.health.reachable:
            return None
        try:
            design = design_of_object(obj)
        except Invalid:  # the plan reports it
            return ObservedBuild(region.name)
        try:
            return await observe(region, design, removing=obj.deleting)
        except Unreachable:
            return None

    def plan(self, obj: ProxmoxTemplate, seen: ObservedTemplateRegions) -> TemplateMove:
        """See :mod:`.describe`."""
        return plan_template(obj, seen)

    async def act(self, move: TemplateMove) -> None:
        """Perform one step and follow its task."""
        assert isinstance(move, RegionMove)
        await self._regions[move.region].perform(move.move.step, TemplateTask(move.owner))

    def describe(
        self, obj: ProxmoxTemplate, seen: ObservedTemplateRegions, move: TemplateMove
    ) -> ProxmoxTemplateStatus:
        """See :mod:`.describe`."""
        return describe_template(obj, seen, move)

    def events(
        self, obj: ProxmoxTemplate, seen: ObservedTemplateRegions, move: TemplateMove
    ) -> Sequence[Note]:
        """One event per guest that is created, converted or destroyed."""
        if not isinstance(move, RegionMove):
            return ()
        step = move.move.step
        if isinstance(step, CreateGuest | MakeTemplate | Destroy):
            return (Note(type(step).__name__, str(move)),)
        return ()
