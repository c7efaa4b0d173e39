"""
``moxwell plan``: what a manifest would do, before anybody applies it. Nothing is changed.

In flow manifests; out flows a report as plain data: objects made, changed and deleted, what each
group does, where new machines land and which addresses they are likely to get. The API itself says
by dry runs how objects would look; the same code that places machines says where they would be.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from moxwell.api.capi.core import Cluster
from moxwell.api.capi.machinesets import MachineDeployment, MachineSet
from moxwell.api.capi.shared import DEPLOYMENT_NAME
from moxwell.api.cozystack import Kubernetes, Tenant
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachineTemplate
from moxwell.api.kinds import Resource
from moxwell.controllers.tenancy.cluster import diff, plan, rollout_order
from moxwell.controllers.tenancy.cluster.controller import MANAGER
from moxwell.controllers.tenancy.cluster.defaults import Defaults
from moxwell.controllers.tenancy.cluster.desired_objects import expand
from moxwell.controllers.tenancy.cluster.plan import Seen
from moxwell.controllers.tenancy.cluster.see import RESOURCES, see, surroundings, within
from moxwell.controllers.tenancy.tenant import plan as tenants
from moxwell.errors import Invalid, Missing, MoxwellError
from moxwell.kube.client import Kube
from moxwell.plan.placement import Landing, Wanted

Json = dict[str, Any]
CLI = "moxwell-cli"


class Foresight:
    """Says what manifests would do."""

    def __init__(self, kube: Kube, landing: Landing, defaults: Callable[[], Defaults]) -> None:
        self._kube, self._landing, self._defaults = kube, landing, defaults

    async def plan(self, documents: Sequence[Json], *, delete: bool = False) -> Json:
        """The whole report, one part for each document; of applying them, or of deleting them."""
        served = {(s.resource.api_version, s.resource.kind): s for s in await self._kube.discover()}
        parts = []
        for doc in documents:
            found = served.get((str(doc.get("apiVersion")), str(doc.get("kind"))))
            if found is None:
                raise Invalid(f"{doc.get('apiVersion')} {doc.get('kind')} is not served here")
            look = self._deletion if delete else self._document
            parts.append(await look(doc, found.resource))
        return {"parts": parts}

    async def action(self, query: Mapping[str, Any]) -> Json:
        """The same for somebody who asks the daemon: the body is a list of manifests in JSON."""
        try:
            documents = msgspec.json.decode(query.get("body") or b"[]", type=list[Json])
        except msgspec.DecodeError as error:
            raise Invalid(f"the manifests cannot be read: {error}") from error
        return await self.plan(documents, delete=bool(query.get("delete")))

    async def _document(self, doc: Json, resource: Resource) -> Json:
        name, space = _named(doc, resource)
        before = await self._kube.find(resource, name, space)
        notes: list[str] = []
        try:
            after = await self._kube.apply(doc, resource, manager=CLI, force=True, dry_run=True)
        except Missing as error:
            after = doc
            notes.append(str(error))
        how = "make" if before is None else "change"
        fields = diff.differences(before, after) if before is not None else ()
        part: Json = {"kind": resource.kind, "name": name, "namespace": space, "notes": notes}
        part["how"] = how if before is None or fields else "none"
        part["fields"] = list(fields)
        part |= await self._beyond(resource.kind, before, after, notes)
        return part

    async def _deletion(self, doc: Json, resource: Resource) -> Json:
        """What goes with an object that is deleted."""
        name, space = _named(doc, resource)
        found = await self._kube.find(resource, name, space)
        part: Json = {"kind": resource.kind, "name": name, "namespace": space, "fields": []}
        part |= {"objects": [], "groups": [], "machines": []}
        if found is None:
            return part | {"how": "none", "notes": [f"there is no {resource.kind} {name}"]}
        part |= {"how": "delete", "notes": []}
        if resource.kind == "MachineDeployment":
            groups = [msgspec.convert(found, MachineDeployment, strict=False)]
            return part | await self._gone(groups)
        if resource.kind != "Kubernetes":
            return part
        seen = await see(self._kube, msgspec.convert(found, Kubernetes, strict=False))
        rows = [("Cluster", seen.cluster), ("KamajiControlPlane", seen.plane)]
        names = [(kind, obj.name) for kind, obj in rows if obj is not None]
        if await self._kube.find(ProxmoxCluster, name, space) is not None:
            names.append(("ProxmoxCluster", name))
        names += [(o["kind"], o["metadata"]["name"]) for o in seen.ours]
        changes = [diff.Change("delete", *one) for one in names]
        report = await self._gone(seen.deployments)
        return part | report | {"objects": [msgspec.to_builtins(c) for c in changes]}

    async def _gone(self, groups: Sequence[MachineDeployment]) -> Json:
        """Groups that are taken away with all their machines."""
        self._landing.begin()
        rows, machines = [], []
        for group in groups:
            leaving = await self._landing.land_gone(group)
            count = len(leaving)
            change = diff.GroupChange(group.name, count, 0, False, 0, count)
            rows.append(msgspec.to_builtins(change))
            machines += leaving
        return {"groups": rows, "machines": machines}

    async def _beyond(self, kind: str, before: Json | None, after: Json, notes: list[str]) -> Json:
        """What follows from an object beyond itself."""
        if kind == "Kubernetes":
            space = after["metadata"]["namespace"]
            around = await surroundings(self._kube, space, self._defaults())
            return await self._cluster(after, before is not None, notes, around)
        if kind == "Tenant":
            return await self._tenant(after, notes)
        if kind == "MachineDeployment":
            space = after["metadata"]["namespace"]
            ground = await self._ground_of(after, space)
            self._landing.begin()
            sets = (await self._kube.list(MachineSet, space)).items
            change = diff.group_change(after["metadata"]["name"], before, after, sets)
            return await self._groups([(change, after)], {}, ground, notes)
        return {"objects": [], "groups": [], "machines": []}

    async def _ground_of(self, group: Json, space: str) -> Json | None:
        cluster = await self._kube.find(Cluster, group["spec"]["clusterName"], space)
        ref = cluster.spec.infrastructure_ref if cluster else None
        if ref is None or ref.kind != "ProxmoxCluster":
            return None
        return await self._kube.find(ProxmoxCluster.resource, ref.name, space)

    async def _tenant(self, tree: Json, notes: list[str]) -> Json:
        """Its clusters, with the walls and bridges that it then gives them."""
        tenant = msgspec.convert(tree, Tenant, strict=False)
        space = next(o for o in tenants.objects(tenant, ()) if o["kind"] == "Namespace")["metadata"]
        report: Json = {"objects": [], "groups": [], "machines": []}
        for app in (await self._kube.list(Kubernetes.resource, space["name"])).items:
            if "deletionTimestamp" not in app["metadata"]:
                around = within(space, self._defaults())
                _add(report, await self._cluster(app, True, notes, around))
        return report

    async def _cluster(self, tree: Json, there: bool, notes: list[str], around: Defaults) -> Json:
        app = msgspec.convert(tree, Kubernetes, strict=False)
        wanted = expand(app, around)
        seen = await see(self._kube, app) if there else plan.Seen()
        before, after = await self._as_they_become(wanted) if there else ({}, {})
        changed = (
            *diff.changes(wanted, before, after),
            *diff.deletions(_with(wanted, after), seen),
        )
        becoming = {o["metadata"]["name"]: o for o in _deployments(_with(wanted, after))}
        past = {o["metadata"]["name"]: o for o in _deployments(before.values())}
        trees = {o["metadata"]["name"]: o for o in _deployments(wanted)}
        gone = {d.name for d in seen.deployments} - becoming.keys()
        rolling = {n: rollout_order.rolls(trees[n], seen.deployments) for n in becoming}
        by_name = {(o["kind"], o["metadata"]["name"]): o for o in _with(wanted, after)}
        ground = by_name.get(("ProxmoxCluster", app.name))
        self._landing.begin()
        report: Json = {"groups": [], "machines": []}
        for rolls in (False, True):  # whole groups go after counts, and before others roll
            rows = [
                (diff.group_change(n, past.get(n), becoming[n], seen.sets), becoming[n])
                for n in becoming
                if rolling[n] is rolls
            ]
            _add(report, await self._groups(rows, by_name, ground, notes))
            if not rolls:
                _add(report, await self._leaving(seen, past, sorted(gone)))
        return report | {"objects": [msgspec.to_builtins(c) for c in changed]}

    async def _leaving(self, seen: Seen, past: Mapping[str, Json], names: Sequence[str]) -> Json:
        """Whole groups that nobody wants any more."""
        found = {d.name: d for d in seen.deployments}
        rows, machines = [], []
        for name in names:
            change = diff.group_change(name, past.get(name), None, seen.sets)
            rows.append(msgspec.to_builtins(change))
            machines += await self._landing.land_gone(found[name])
        return {"groups": rows, "machines": machines}

    async def _as_they_become(
        self, wanted: Iterable[Json]
    ) -> tuple[dict[diff.Name, Json], dict[diff.Name, Json]]:
        before: dict[diff.Name, Json] = {}
        after: dict[diff.Name, Json] = {}
        for obj in wanted:
            kind, meta = obj["kind"], obj["metadata"]
            found = await self._kube.find(RESOURCES[kind], meta["name"], meta["namespace"])
            if found is None:
                continue
            before[kind, meta["name"]] = found
            if kind not in plan.TEMPLATES:
                become = await self._kube.apply(
                    obj, RESOURCES[kind], manager=MANAGER, force=True, dry_run=True
                )
                count = plan.handed_over(obj, found, MANAGER)
                if count is not None:
                    become = {**become, "spec": {**become["spec"], "replicas": count}}
                after[kind, meta["name"]] = become
        return before, after

    async def _groups(
        self,
        groups: Sequence[tuple[diff.GroupChange, Json | None]],
        objects: Mapping[diff.Name, Json],
        ground: Json | None,
        notes: list[str],
    ) -> Json:
        rows, machines = [], []
        for change, tree in groups:
            rows.append(msgspec.to_builtins(change))
            try:
                wanted = await self._wanted(change, tree, objects, ground)
                machines += await self._landing.land(wanted) if wanted else []
            except MoxwellError as error:
                notes.append(f"{change.name}: {error}")
        return {"objects": [], "groups": rows, "machines": machines}

    async def _wanted(
        self,
        change: diff.GroupChange,
        tree: Json | None,
        objects: Mapping[diff.Name, Json],
        ground: Json | None,
    ) -> Wanted | None:
        if tree is None or ground is None or not (change.made or change.removed):
            return None
        group = msgspec.convert(tree, MachineDeployment, strict=False)
        ref = group.spec.template.spec.infrastructure_ref
        if ref is None or ref.kind != "ProxmoxMachineTemplate":
            return None
        template = objects.get((ref.kind, ref.name)) or await self._kube.get(
            ProxmoxMachineTemplate.resource, ref.name, group.namespace
        )
        labels = {DEPLOYMENT_NAME: group.name}
        sets = (await self._kube.list(MachineSet, group.namespace, labels=labels)).items
        typed = msgspec.convert(template, ProxmoxMachineTemplate, strict=False)
        return Wanted(
            change, group, typed, msgspec.convert(ground, ProxmoxCluster, strict=False), tuple(sets)
        )


def _named(doc: Json, resource: Resource) -> tuple[str, str]:
    """Name and namespace; a namespace is given to what needs one and taken from what has none."""
    meta = doc.setdefault("metadata", {})
    if resource.namespaced:
        meta.setdefault("namespace", "default")
    else:
        meta.pop("namespace", None)
    name = str(meta.get("name", ""))
    if not name:
        raise Invalid(f"a {resource.kind} in the file has no metadata.name")
    return name, str(meta.get("namespace", ""))


def _add(report: Json, part: Json) -> None:
    for key, rows in part.items():
        report[key] = [*report.get(key, ()), *rows]


def _with(wanted: Iterable[Json], after: Mapping[diff.Name, Json]) -> list[Json]:
    """Objects as they will be: those that are there as they become, new ones as they are made."""
    rows = []
    for obj in wanted:
        found = after.get((obj["kind"], obj["metadata"]["name"]))
        rows.append({**obj, **found} if found else plan.first_replicas(obj))
    return rows


def _deployments(objects: Iterable[Json]) -> list[Json]:
    return [o for o in objects if o["kind"] == "MachineDeployment"]
