"""The loop over tenant clusters."""

from collections.abc import Callable, Sequence
from typing import Any

from moxwell.api.capi.controlplane import KamajiControlPlane
from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.cozystack import Kubernetes, KubernetesStatus
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.kinds import Object
from moxwell.clock import Clock, SystemClock
from moxwell.controllers.tenancy.cluster import plan, rollout_order
from moxwell.controllers.tenancy.cluster.defaults import Defaults
from moxwell.controllers.tenancy.cluster.desired_objects import stages
from moxwell.controllers.tenancy.cluster.see import RESOURCES, see, surroundings
from moxwell.kube.client import Kube
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note, Outcome
from moxwell.runtime.watches import Watch

POLL_SECONDS = 5.0
MANAGER = "moxwell-tenancy"
FIRST = "moxwell-tenancy-first"  # of a count that an autoscaler then changes
Json = dict[str, Any]


def _deployment(stage: Sequence[Json]) -> Json:
    return next(obj for obj in stage if obj["kind"] == "MachineDeployment")


def _app_of(obj: Object) -> list[Key]:
    name = obj.metadata.labels.get(CLUSTER_NAME)
    return [Key(obj.namespace, name)] if name else []


class TenantClusters:
    """Keeps the objects that a ``Kubernetes`` stands for."""

    kind = Kubernetes
    finalizer = "apps.cozystack.io/kubernetes"
    watches: Sequence[Watch] = tuple(
        Watch(kind, _app_of)
        for kind in (
            Cluster,
            KamajiControlPlane,
            MachineDeployment,
            MachineSet,
            Machine,
            ProxmoxMachine,
        )
    )

    def __init__(
        self, kube: Kube, defaults: Callable[[], Defaults], clock: Clock | None = None
    ) -> None:
        self._kube, self._defaults, self._clock = kube, defaults, clock or SystemClock()
        self._since: dict[tuple[Key, str], tuple[rollout_order.Progress, float]] = {}

    async def reconcile(self, app: Kubernetes) -> Outcome[KubernetesStatus]:
        seen = await see(self._kube, app)
        if app.deleting:
            return await self._unmake(app, seen)
        defaults = await surroundings(self._kube, app.namespace, self._defaults())
        ground, *groups = stages(app, defaults)
        order = sorted(
            groups, key=lambda stage: rollout_order.rolls(_deployment(stage), seen.deployments)
        )
        notes, _ = await self._put_all(ground)
        wanted = (*ground, *(o for s in groups for o in s))
        for number, stage in enumerate(order):
            rolls = rollout_order.rolls(_deployment(stage), seen.deployments)
            if rolls and (left := await self._let_go(wanted, seen)):  # before others roll
                return self._held(app, seen, left, order[number:], notes)
            if behind := self._in_the_way(app, _deployment(stage), seen):
                return self._held(app, seen, behind, order[number:], notes)
            made, changed = await self._put_all(stage)
            notes += made
            if changed or self._has_turn(app, stage, seen):
                name = _deployment(stage)["metadata"]["name"]
                seen = await see(self._kube, app) if changed else seen
                return self._held(app, seen, name, order[number + 1 :], notes)
        behind = await self._let_go(wanted, seen) or self._moving(app, seen)
        if behind:  # templates that nobody wants any more go at the end
            return self._held(app, seen, behind, (), notes)
        for obj in plan.leftovers(wanted, seen):
            await self._remove(obj)
        return Outcome(plan.describe(app, seen), notes=tuple(notes))

    async def _let_go(self, wanted: Sequence[Json], seen: plan.Seen) -> str:
        """Whole groups that nobody wants any more; the name of one that only now begins to go."""
        left = ""
        for obj in plan.leftovers(wanted, seen):
            if obj["kind"] in plan.TEMPLATES or "deletionTimestamp" in obj["metadata"]:
                continue
            await self._remove(obj)
            left = obj["metadata"]["name"]
        return left

    def _in_the_way(self, app: Kubernetes, tree: Json, seen: plan.Seen) -> str:
        """Whom a group that would roll waits for."""
        if not rollout_order.rolls(tree, seen.deployments):
            return ""
        plane = seen.plane.status.version if seen.plane else ""
        if rollout_order.outruns(tree, seen.deployments, plane):
            return "the control plane"
        return self._moving(app, seen)

    def _moving(self, app: Kubernetes, seen: plan.Seen) -> str:
        """A group in which something still happens."""
        moving = (
            d.name
            for d in seen.deployments
            if rollout_order.is_moving(d, seen.machines, seen.guests)
            and not self._is_stuck(app, d, seen, rollout_order.PATIENCE_SECONDS)
        )
        return next(moving, "")

    def _has_turn(self, app: Kubernetes, stage: tuple[Json, ...], seen: plan.Seen) -> bool:
        """Whether the counts of the others wait for this group."""
        name = _deployment(stage)["metadata"]["name"]
        group = next((d for d in seen.deployments if d.name == name), None)
        if group is None:
            return True
        if not rollout_order.holds(group, seen.machines, seen.guests):
            return False
        return not self._is_stuck(app, group, seen, rollout_order.COUNT_PATIENCE_SECONDS)

    def _is_stuck(
        self, app: Kubernetes, group: MachineDeployment, seen: plan.Seen, patience: float
    ) -> bool:
        """Whether nothing has happened in a group for so long."""
        key, now = (Key(app.namespace, app.name), group.name), self._clock.monotonic()
        progress = rollout_order.Progress.of(group, seen.machines, seen.guests)
        known = self._since.get(key)
        if known is None or known[0] != progress:
            known = self._since[key] = (progress, now)
        return now - known[1] >= patience

    def _held(
        self,
        app: Kubernetes,
        seen: plan.Seen,
        behind: str,
        left: Sequence[tuple[Json, ...]],
        notes: list[Note],
    ) -> Outcome[KubernetesStatus]:
        """One has the turn; the others are told so."""
        rest = [_deployment(stage) for stage in left]
        waiting = rollout_order.queued(rest, behind, seen.deployments)
        status = plan.describe(app, seen, waiting)
        return Outcome(status, again=POLL_SECONDS, notes=tuple(notes))

    async def _put_all(self, objects: Sequence[Json]) -> tuple[list[Note], bool]:
        notes, changed = [], False
        for obj in objects:
            note, different = await self._put(obj)
            notes += [note] if note else []
            changed = changed or different
        return notes, changed

    async def _put(self, obj: Json) -> tuple[Note | None, bool]:
        """
        Templates are made once; the rest is applied, field by field.

        The first write is a plain create: what it holds and later applies leave out, the first
        count of an autoscaled group, is then nobody's to remove.
        """
        resource, meta = RESOURCES[obj["kind"]], obj["metadata"]
        found = await self._kube.find(resource, meta["name"], meta["namespace"])
        if found is None:
            await self._kube.create(plan.first_replicas(obj), resource)
            return Note("Made", f"made {obj['kind']} {meta['name']}"), True
        if obj["kind"] in plan.TEMPLATES:
            return None, False
        count = plan.handed_over(obj, found, MANAGER)
        if count is not None:
            await self._kube.apply(
                plan.only_replicas(obj, count), resource, manager=FIRST, force=True
            )
        after = await self._kube.apply(obj, resource, manager=MANAGER, force=True)
        return None, after["metadata"].get("generation") != found["metadata"].get("generation")

    async def _remove(self, obj: Json) -> None:
        meta = obj["metadata"]
        if "deletionTimestamp" not in meta:
            await self._kube.delete(
                RESOURCES[obj["kind"]], meta["name"], meta["namespace"], uid=meta["uid"]
            )

    async def _unmake(self, app: Kubernetes, seen: plan.Seen) -> Outcome[KubernetesStatus]:
        """The Cluster takes machines, control plane and ground with it; then the rest goes."""
        status = plan.describe(app, seen)
        if seen.cluster is not None:
            if not seen.cluster.deleting:
                await self._kube.delete(Cluster, app.name, app.namespace, uid=seen.cluster.uid)
            return Outcome(status, again=POLL_SECONDS)
        for obj in seen.ours:
            await self._remove(obj)
        return Outcome(status, again=POLL_SECONDS, settled=not seen.ours)
