"""
Moves the objects of a cluster from one API to another, as ``clusterctl move`` does.

The objects are those that the Cluster owns, directly or not, and those with its name in their
label. They are created owners first, with the UIDs that their owners have in the target, without
status; the Cluster is created paused, so that no controller acts on them while the source has them
too. The source keeps its Cluster, which is paused as well, until all others are deleted there.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moxwell.api.capi.core import Cluster
from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.errors import Missing
from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists
from moxwell.kube.reader import Reader
from moxwell.management.objects import MOVED, NAMESPACES
from moxwell.runtime.unstructured import Unstructured
from moxwell.runtime.writes import Merge

Json = dict[str, Any]
MOVING = "moxwell.dev/moving"  # annotation of a Cluster that is being moved
KEPT = ("name", "namespace", "labels", "annotations", "finalizers")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


async def read_objects(reader: Reader, namespace: str, cluster: str) -> tuple[Unstructured, ...]:
    """The objects of a cluster, owners first; a kind that the API does not serve has none."""
    found = []
    for resource in MOVED:
        try:
            page = await reader.list(resource, namespace)
        except Missing:
            continue
        found += [Unstructured(resource, obj) for obj in page.items]
    return ordered(parts_of(found, cluster))


def parts_of(found: Iterable[Unstructured], cluster: str) -> list[Unstructured]:
    """Those that the Cluster owns, directly or not, and those with its label."""
    rest, chosen, uids = list(found), list[Unstructured](), set[str]()
    while True:
        now = [o for o in rest if _belongs(o, cluster, uids)]
        if not now:
            return chosen
        chosen += now
        uids |= {o.uid for o in now}
        rest = [o for o in rest if o not in now]


def _belongs(found: Unstructured, cluster: str, uids: set[str]) -> bool:
    if found.resource == Cluster.resource:
        return found.name == cluster
    meta = found.obj["metadata"]
    owners = {o["uid"] for o in meta.get("ownerReferences") or ()}
    return bool(owners & uids) or (meta.get("labels") or {}).get(CLUSTER_NAME) == cluster


def ordered(found: Sequence[Unstructured]) -> tuple[Unstructured, ...]:
    """The Cluster first, then owners before what they own."""
    known = {o.uid: o for o in found}
    depth: dict[str, int] = {}

    def of(each: Unstructured, path: frozenset[str] = frozenset()) -> int:
        if each.uid not in depth:
            owners = [o["uid"] for o in each.obj["metadata"].get("ownerReferences") or ()]
            above = [known[u] for u in owners if u in known and u not in path]
            deeper = path | {each.uid}
            depth[each.uid] = max((of(o, deeper) + 1 for o in above), default=0)
        return depth[each.uid]

    def rank(each: Unstructured) -> tuple[bool, int, str, str]:
        return each.resource != Cluster.resource, of(each), *each.identity

    return tuple(sorted(found, key=rank))


def prepared(found: Unstructured, uids: Mapping[str, str]) -> Json:
    """The object to create in the target; ``uids`` maps UIDs of the source to the target's."""
    meta = found.obj["metadata"]
    kept = {key: meta[key] for key in KEPT if meta.get(key)}
    annotations = {k: v for k, v in (meta.get("annotations") or {}).items() if k != LAST_APPLIED}
    owners = [
        {**owner, "uid": uids[owner["uid"]]}
        for owner in meta.get("ownerReferences") or ()
        if owner["uid"] in uids
    ]
    body = {k: v for k, v in found.obj.items() if k not in ("metadata", "status")}
    if found.resource == Cluster.resource:
        annotations |= {MOVING: ""}
        body["spec"] = {**body["spec"], "paused": True}
    kept |= {"annotations": annotations} if annotations else {}
    kept |= {"ownerReferences": owners} if owners else {}
    return {
        "apiVersion": found.resource.api_version,
        "kind": found.resource.kind,
        **{k: v for k, v in body.items() if k not in ("apiVersion", "kind")},
        "metadata": kept,
    }


async def create_objects(target: Kube, objects: Sequence[Unstructured]) -> None:
    """Create what the target does not have; an object that it has is kept as it is."""
    uids: dict[str, str] = {}
    for each in objects:
        there = await target.find(each.resource, each.name, each.namespace)
        if there is None:
            there = await target.create(prepared(each, uids), each.resource)
        uids[each.uid] = str(there["metadata"]["uid"])


async def ensure_namespace(target: Kube, name: str) -> None:
    """Create a namespace unless it exists."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    if await target.find(NAMESPACES, name) is None:
        try:
            await target.create(body, NAMESPACES)
        except AlreadyExists:
            return


async def delete_objects(source: Kube, objects: Sequence[Unstructured]) -> None:
    """Delete objects without running their finalizers: the guests stay. The Cluster is last."""
    for each in reversed(objects):
        meta = each.obj["metadata"]
        if meta.get("finalizers"):
            change = {"metadata": {"finalizers": None, "uid": each.uid}}
            removal = Merge(each.resource, each.name, change, each.namespace, missing_ok=True)
            await removal.perform(source)
        await each.delete().perform(source)


def begin(cluster: Json) -> Merge:
    """Pause a Cluster for the move."""
    meta = cluster["metadata"]
    change = {"metadata": {"annotations": {MOVING: ""}}, "spec": {"paused": True}}
    return Merge(Cluster.resource, meta["name"], change, meta.get("namespace", ""))


def end(cluster: Json) -> Merge:
    """Let the controllers work on a Cluster again."""
    meta = cluster["metadata"]
    change = {"metadata": {"annotations": {MOVING: None}}, "spec": {"paused": None}}
    return Merge(Cluster.resource, meta["name"], change, meta.get("namespace", ""))


def is_moving(cluster: Json | None) -> bool:
    """Whether a Cluster is paused for a move."""
    return cluster is not None and MOVING in (cluster["metadata"].get("annotations") or {})


def absent(objects: Iterable[Unstructured], there: Iterable[Unstructured]) -> bool:
    """Whether the other API lacks one of the objects."""
    known = {o.identity for o in there}
    return any(o.identity not in known for o in objects)


def is_paused(found: Unstructured) -> bool:
    """Whether the controllers of an object report that they pause."""
    conditions = (found.obj.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Paused" and c.get("status") == "True" for c in conditions)
