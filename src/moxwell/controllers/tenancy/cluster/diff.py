"""
What a change would do to a tenant cluster: pure, and in the words of a plan.

In flow the objects wanted and the objects there are (a dry run of the API says how each would look
afterwards); out flow what is made, changed and deleted, and how many nodes each group rolls. The
surprise: the template of the last rollout stays, as Cluster API keeps one old MachineSet.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.capi.shared import DEPLOYMENT_NAME, TEMPLATE_HASH
from moxwell.controllers.tenancy.cluster import plan
from moxwell.embedded.clusterapi.machinedeployment.plan import HISTORY, template_hash

Json = dict[str, Any]
Name = tuple[str, str]  # kind, name
How = Literal["make", "change", "delete"]
_SERVERS = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")


@dataclass(frozen=True, slots=True)
class Change:
    """One object that would not be as it is."""

    how: How
    kind: str
    name: str
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupChange:
    """What happens to the nodes of a group."""

    name: str  # of the MachineDeployment
    before: int
    after: int
    rolls: bool
    made: int
    removed: int
    because: tuple[str, ...] = ()

    @property
    def quiet(self) -> bool:
        """Nothing happens to its nodes."""
        return not self.made and not self.removed


def changes(
    wanted: Iterable[Json], before: Mapping[Name, Json], after: Mapping[Name, Json]
) -> tuple[Change, ...]:
    """What is made and what is changed; ``after`` are those that exist, as they would become."""
    found = []
    for obj in wanted:
        name = (obj["kind"], obj["metadata"]["name"])
        if name not in before:
            found.append(Change("make", *name))
        elif name in after and (fields := differences(before[name], after[name])):
            found.append(Change("change", *name, fields))
    return tuple(found)


def deletions(wanted: Sequence[Json], seen: plan.Seen) -> tuple[Change, ...]:
    """What is taken away, once the rollout is over."""
    names = {(o["kind"], o["metadata"]["name"]) for o in wanted}
    groups = {o["metadata"]["name"]: o for o in wanted if o["kind"] == "MachineDeployment"}
    kept = plan.Seen(sets=tuple(surviving(groups, seen.sets)))
    ours = [o for o in seen.ours if (o["kind"], o["metadata"]["name"]) not in names]
    gone = plan.leftovers((), plan.Seen(sets=kept.sets, ours=tuple(ours)))
    return tuple(Change("delete", o["kind"], o["metadata"]["name"]) for o in gone)


def surviving(groups: Mapping[str, Json], sets: Sequence[MachineSet]) -> Iterable[MachineSet]:
    """The sets that are left after every group has rolled: the current and one before it."""
    for name, tree in groups.items():
        short = template_hash(msgspec.convert(tree, MachineDeployment, strict=False))
        mine = [s for s in sets if s.metadata.labels.get(DEPLOYMENT_NAME) == name]
        yield from (s for s in mine if s.metadata.labels.get(TEMPLATE_HASH) == short)
        old = [s for s in mine if s.metadata.labels.get(TEMPLATE_HASH) != short]
        yield from sorted(old, key=lambda s: (_created(s), s.name))[-HISTORY:]


def _created(fleet: MachineSet) -> str:
    at = fleet.metadata.creation_timestamp
    return at.isoformat() if at else ""


def group_change(
    name: str, before: Json | None, after: Json | None, sets: Sequence[MachineSet]
) -> GroupChange:
    """One group; ``after`` is None where it is taken away."""
    mine = [s for s in sets if s.metadata.labels.get(DEPLOYMENT_NAME) == name]
    there = sum(_count(s) for s in mine)
    if after is None:
        return GroupChange(name, there, 0, False, 0, there)
    group = msgspec.convert(after, MachineDeployment, strict=False)
    wanted = 1 if group.spec.replicas is None else group.spec.replicas
    short = template_hash(group)
    kept = sum(_count(s) for s in mine if s.metadata.labels.get(TEMPLATE_HASH) == short)
    stay = min(kept, wanted)
    fields = _rolling_fields(before, after) if before is not None else ()
    return GroupChange(
        name, there, wanted, there > kept, wanted - stay, there - stay, tuple(fields)
    )


def _count(fleet: MachineSet) -> int:
    return 1 if fleet.spec.replicas is None else fleet.spec.replicas


def _rolling_fields(before: Json, after: Json) -> Iterable[str]:
    for field in differences(before, after):
        if field.startswith("spec.template.spec."):
            yield field.removeprefix("spec.template.spec.")


def differences(before: Any, after: Any, at: str = "") -> tuple[str, ...]:
    """The paths at which two objects differ, without what is the server's own business."""
    if not at:
        before, after = _bare(before), _bare(after)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = sorted(before.keys() | after.keys())
        found: list[str] = []
        for key in keys:
            path = f"{at}.{key}" if at else key
            found += differences(before.get(key), after.get(key), path)
        return tuple(found)
    return () if before == after else (at,)


def _bare(obj: Json) -> Json:
    meta = {k: v for k, v in (obj.get("metadata") or {}).items() if k not in _SERVERS}
    return {k: v for k, v in obj.items() if k != "status"} | {"metadata": meta}
