"""Decides the next move of a ProxmoxTemplate over all its regions, and its status. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from moxwell.api.conditions import Condition
from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate, ProxmoxTemplateStatus
from moxwell.controllers.infra.task_backoff import TaskFailure
from moxwell.controllers.infra.template_build.failures import explained
from moxwell.controllers.infra.template_build.from_spec import design_of_object
from moxwell.controllers.infra.template_build.observed import ObservedBuild
from moxwell.controllers.infra.template_build.plan import (
    BuildMove,
    BuildPlan,
    plan_build,
    plan_removal,
)
from moxwell.errors import MoxwellError
from moxwell.runtime.move import Done, Wait

CONDITIONS = ("Ready", "ProxmoxVirtualMachineTemplateReady")
RETRY_SECONDS, RESCAN_SECONDS, POLL_SECONDS = 60.0, 300.0, 5.0


class TemplateBuildReason(StrEnum):
    """Reasons of the conditions of a ProxmoxTemplate, besides those of errors."""

    READY = "Ready"
    CREATING = "Creating"
    DELETING = "Deleting"
    REGION_UNREACHABLE = "RegionUnreachable"
    UNKNOWN_REGION = "UnknownRegion"
    TEMPLATE_IN_USE = "TemplateInUse"


@dataclass(frozen=True, slots=True)
class RegionMove:
    """One move of a build in a region, for the object that owns the template."""

    region: str
    move: BuildMove
    owner: str

    def __str__(self) -> str:
        return f"{self.region}/{self.move.host}: {self.move.text}"


TemplateMove = RegionMove | Wait | Done


@dataclass(frozen=True, slots=True)
class ObservedTemplateRegions:
    """The regions of a ProxmoxTemplate; ``unreachable`` ones are not read."""

    builds: Mapping[str, ObservedBuild] = field(default_factory=dict)
    unreachable: tuple[str, ...] = ()
    unknown: str = ""  # a region in the spec that is not configured
    failure: TaskFailure | None = None
    backoff_seconds: float = 0.0


def plan_template(obj: ProxmoxTemplate, seen: ObservedTemplateRegions) -> TemplateMove:
    """The first move of any region, what is waited for, or Done."""
    if seen.failure is not None and seen.backoff_seconds > 0:
        error = explained(seen.failure.error, "last attempt")
        return Wait(error.reason, str(error), seen.backoff_seconds)
    if seen.unknown and not obj.deleting:
        text = f"region: no region {seen.unknown!r} is configured"
        return Wait(TemplateBuildReason.UNKNOWN_REGION, text, RETRY_SECONDS)
    waits: list[Wait] = []
    for region, build in seen.builds.items():
        move = _in_region(obj, region, build)
        if isinstance(move, RegionMove):
            return move
        if isinstance(move, Wait):
            waits.append(move)
    if seen.unreachable:
        text = f"no answer from {', '.join(seen.unreachable)}"
        waits.append(Wait(TemplateBuildReason.REGION_UNREACHABLE, text, RETRY_SECONDS))
    return waits[0] if waits else Done(None if obj.deleting else RESCAN_SECONDS)


def _in_region(obj: ProxmoxTemplate, region: str, build: ObservedBuild) -> TemplateMove:
    try:
        design = design_of_object(obj)
        plan = plan_removal(design, build) if obj.deleting else plan_build(design, build)
    except MoxwellError as error:
        return Wait(error.reason, f"region {region}: {error}", RETRY_SECONDS)
    if plan.moves:
        return RegionMove(region, plan.moves[0], obj.name)
    return _waiting(obj, region, plan)


def _waiting(obj: ProxmoxTemplate, region: str, plan: BuildPlan) -> Wait | Done:
    if plan.waiting:
        reason = TemplateBuildReason.DELETING if obj.deleting else TemplateBuildReason.CREATING
        return Wait(reason, f"region {region}: {'; '.join(plan.waiting)}", POLL_SECONDS)
    if obj.deleting and plan.in_use:
        used = plan.in_use[0]
        clones = ", ".join(map(str, used.linked_clones))
        text = f"region {region}: linked clones of template {used.vmid} exist: guests {clones}"
        return Wait(TemplateBuildReason.TEMPLATE_IN_USE, text, RETRY_SECONDS)
    return Done()


def describe_template(
    obj: ProxmoxTemplate, seen: ObservedTemplateRegions, move: TemplateMove
) -> ProxmoxTemplateStatus:
    """The copies that can be cloned, and whether all are complete."""
    try:
        design = design_of_object(obj)
        revision, image = design.revision, design.image_file
    except MoxwellError:  # the move says why
        revision, image = "", ""
    zones = tuple(
        sorted(
            f"{region}/{copy.host}/{copy.vmid}"
            for region, build in seen.builds.items()
            for copy in build.copies
            if copy.finished and copy.revision == revision
        )
    )
    return ProxmoxTemplateStatus(
        conditions=_conditions(obj, move, zones),
        resources={"zones": str(len(zones))},
        zones=zones,
        image_id=image,
    )


def _conditions(
    obj: ProxmoxTemplate, move: TemplateMove, zones: tuple[str, ...]
) -> tuple[Condition, ...]:
    reason: str = TemplateBuildReason.READY
    message = ""
    if isinstance(move, Wait):
        reason, message = move.reason, move.message
    elif isinstance(move, RegionMove):
        reason, message = TemplateBuildReason.CREATING, str(move)
    if obj.deleting and not isinstance(move, Wait):
        reason = TemplateBuildReason.DELETING
    ready = isinstance(move, Done) and bool(zones) and not obj.deleting
    return tuple(
        Condition(
            type=type_,
            status="True" if ready else "False",
            reason=reason,
            message=message,
            observed_generation=obj.metadata.generation,
        )
        for type_ in CONDITIONS
    )
