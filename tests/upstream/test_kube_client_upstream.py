"""
The client against a genuine apiserver and, in process, the embedded API: every verb, and every
error we can provoke.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from envtest.control_plane import PROGRAMS, ControlPlane
from envtest.plugin import require
from moxwell.api import cozystack, crd
from moxwell.api.core.events import Event, InvolvedObject
from moxwell.api.core.nodes import Node, NodeStatus, Taint
from moxwell.api.core.pods import Container, Pod, PodSpec
from moxwell.api.core.resources import (
    ConfigMap,
    Lease,
    LeaseSpec,
    Namespace,
    Secret,
    Service,
    ServiceAccount,
)
from moxwell.api.kinds import Object, Resource, owner_reference
from moxwell.api.meta import ObjectMeta, micro_time
from moxwell.api.requests import Handler
from moxwell.clock import SystemClock
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.errors import Denied
from moxwell.kube import errors, kubeconfig, patch
from moxwell.kube.caller import Caller
from moxwell.kube.client import Kube
from moxwell.kube.codec import Bookmark, WatchEvent
from moxwell.kube.credentials import StaticCredentials, token
from moxwell.kube.discovery import ServedKind
from moxwell.kube.kubeconfig import ApiAccess
from moxwell.kube.transport import KubeTransport

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
PODS = Pod.resource
CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)
NAME = cozystack.Tenant.resource.group_resource
NAMES = count()


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    require(*PROGRAMS)
    with ControlPlane(tmp_path_factory.mktemp("plane")) as control_plane:
        yield control_plane.start()


@pytest.fixture
def access(plane: ControlPlane) -> ApiAccess:
    return kubeconfig.load([Path(plane.kubeconfig)]).access(SystemClock(), {})


@pytest.fixture(params=[pytest.param("genuine", marks=pytest.mark.genuine), "embedded"])
async def handler(request: pytest.FixtureRequest) -> AsyncIterator[Handler]:
    """The genuine API server or the embedded one."""
    async with AsyncExitStack() as stack:
        if request.param == "genuine":
            transport = KubeTransport(request.getfixturevalue("access"))
            yield await stack.enter_async_context(transport)
        else:
            yield await stack.enter_async_context(EmbeddedApiServer(clock=SystemClock()))


@pytest.fixture
def kube(handler: Handler) -> Kube:
    """A client of either; they must not tell it which they are."""
    return Kube(handler, manager="tester")


@pytest.fixture
async def only_genuine(access: ApiAccess) -> AsyncIterator[Kube]:
    async with KubeTransport(access) as transport:
        yield Kube(transport, manager="tester")


@pytest.fixture
async def space(kube: Kube) -> str:
    """A namespace of one's own."""
    name = f"n{next(NAMES)}"
    await kube.create(Namespace(metadata=ObjectMeta(name=name)))
    return name


def note(space: str, name: str = "a", **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=space), data=data)


async def test_version_and_discovery(kube: Kube) -> None:
    assert (await kube.version()).git_version.startswith("v1.")
    served = {(s.resource.group_resource, s.resource.version): s for s in await kube.discover()}
    pods: ServedKind = served["pods", "v1"]
    assert pods.resource == PODS
    assert {"eviction", "binding", "status"} <= set(pods.subresources)
    assert served["leases.coordination.k8s.io", "v1"].resource == Lease.resource


async def test_an_object_is_made_read_changed_and_deleted(kube: Kube, space: str) -> None:
    made = await kube.create(note(space, x="1"))
    assert made.metadata.uid
    changed = msgspec.structs.replace(made, data={"y": "2"})
    written = await kube.update(made, changed)
    assert written.data == {"y": "2"}
    assert await kube.get(ConfigMap, "a", space) == written
    with pytest.raises(errors.WriteConflict):
        await kube.update(made, msgspec.structs.replace(made, data={"z": "3"}))
    with pytest.raises(errors.WriteConflict):
        await kube.delete(ConfigMap, "a", space, uid="another")
    await kube.delete(ConfigMap, "a", space, uid=made.uid)
    assert await kube.find(ConfigMap, "a", space) is None


async def test_a_typed_update_keeps_fields_unknown_to_the_type(kube: Kube, space: str) -> None:
    service: dict[str, Any] = {
        "metadata": {"name": "d", "namespace": space},
        "apiVersion": "v1",
        "kind": "Service",
        "spec": {"ports": [{"port": 80}], "sessionAffinity": "ClientIP"},
    }
    await kube.create(service, Service.resource)
    typed = await kube.get(Service, "d", space)
    spec = msgspec.structs.replace(typed.spec, load_balancer_class=None, external_ips=("10.0.0.9",))
    await kube.update(typed, msgspec.structs.replace(typed, spec=spec))
    found = await kube.get(Service.resource, "d", space)
    assert found["spec"]["sessionAffinity"] == "ClientIP"
    assert found["spec"]["externalIPs"] == ["10.0.0.9"]


async def test_lists_come_in_pages_and_by_selector(kube: Kube, space: str) -> None:
    for number in range(7):
        meta = ObjectMeta(name=f"m{number}", namespace=space, labels={"odd": str(number % 2)})
        await kube.create(ConfigMap(metadata=meta))
    sizes = [len(page.items) async for page in kube.pages(ConfigMap, space, limit=3)]
    assert sizes == [3, 3, 1]
    assert len((await kube.list(ConfigMap, space, labels="odd in (1)")).items) == 3
    one = await kube.list(ConfigMap, space, fields={"metadata.name": "m4"})
    assert [item.name for item in one.items] == ["m4"]
    assert (await kube.list(ConfigMap.resource, space)).items[0]["kind"] == "ConfigMap"
    await kube.delete_collection(ConfigMap, space, labels={"odd": "0"})
    assert len((await kube.list(ConfigMap, space)).items) == 3


async def test_a_table_has_the_columns_of_the_server(kube: Kube, space: str) -> None:
    for name in ("a", "b"):
        await kube.create(note(space, name, x="1"))
    table = await kube.table(ConfigMap, space)
    assert table.columns[0].name == "Name"
    assert [row.cells[0] for row in table.rows] == ["a", "b"]
    one = await kube.table(ConfigMap, space, name="b")
    assert [row.object.metadata.name for row in one.rows] == ["b"]


async def test_patches_of_all_kinds(kube: Kube, space: str) -> None:
    await kube.create(note(space, x="1"))
    merged = await kube.merge(ConfigMap, "a", {"data": {"y": "2"}}, space)
    assert merged.data == {"x": "1", "y": "2"}
    ops = [patch.expect("/data/x", "1"), patch.put("/data/x", "9"), patch.remove("/data/y")]
    assert (await kube.json_patch(ConfigMap, "a", ops, space)).data == {"x": "9"}
    with pytest.raises(errors.InvalidObject):
        await kube.json_patch(ConfigMap, "a", ops, space)


async def test_apply_owns_fields_and_meets_other_owners(
    kube: Kube, handler: Handler, space: str
) -> None:
    await kube.apply(note(space, x="1"))
    with pytest.raises(errors.ApplyConflict) as conflict:
        await kube.apply(note(space, x="2"), manager="other")
    assert conflict.value.status.causes[0].field == ".data.x"
    assert (await kube.apply(note(space, x="2"), manager="other", force=True)).data == {"x": "2"}
    assert (await kube.apply(note(space, y="3"))).data == {"x": "2", "y": "3"}
    found = await Kube(handler, keep_managed_fields=True).get(ConfigMap.resource, "a", space)
    assert {entry["manager"] for entry in found["metadata"]["managedFields"]} == {"tester", "other"}


async def test_dry_runs_leave_nothing(kube: Kube, space: str) -> None:
    assert (await kube.create(note(space), dry_run=True)).uid
    assert await kube.find(ConfigMap, "a", space) is None


async def test_status_and_spec_are_written_apart(kube: Kube) -> None:
    node = await kube.create(Node(metadata=ObjectMeta(name=f"node{next(NAMES)}")))
    with_status = msgspec.structs.replace(node, status=NodeStatus(capacity={"cpu": "4"}))
    written = await kube.update(node, with_status, subresource="status")
    assert written.status.capacity == {"cpu": "4"}
    taints = (*written.spec.taints, Taint(key="a", effect="NoSchedule"))
    spec = msgspec.structs.replace(written.spec, taints=taints)
    tainted = await kube.update(written, msgspec.structs.replace(written, spec=spec))
    assert tainted.status.capacity == {"cpu": "4"}
    assert tainted.spec.taints[-1].key == "a"
    applied = await kube.merge_status(Node, node.name, {"status": {"capacity": {"cpu": "8"}}})
    assert applied.status.capacity == {"cpu": "8"}


def deployment(space: str) -> dict[str, Any]:
    labels = {"app": "x"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": space},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }


async def test_a_dict_is_replaced_whole(kube: Kube, space: str) -> None:
    made = await kube.create(deployment(space), DEPLOYMENTS)
    made["spec"]["replicas"] = 5
    assert (await kube.replace(made, DEPLOYMENTS))["spec"]["replicas"] == 5
    with pytest.raises(errors.WriteConflict):
        await kube.replace(made, DEPLOYMENTS)


async def pod(kube: Kube, space: str) -> Pod:
    await account(kube, space)
    spec = PodSpec(containers=(Container(name="c", image="i"),))
    return await kube.create(Pod(metadata=ObjectMeta(name="p", namespace=space), spec=spec))


async def account(kube: Kube, space: str) -> None:
    made = ServiceAccount(metadata=ObjectMeta(name="default", namespace=space))
    await kube.apply(made, force=True)


async def test_a_pod_is_bound_and_evicted(kube: Kube, space: str) -> None:
    made = await pod(kube, space)
    await kube.bind("p", space, "somewhere")
    assert (await kube.get(Pod, "p", space)).spec.node_name == "somewhere"
    with pytest.raises(errors.WriteConflict):
        await kube.bind("p", space, "elsewhere")
    await kube.evict("p", space, uid=made.uid, grace=0)
    assert await kube.find(Pod, "p", space) is None


async def test_an_eviction_meets_a_budget(kube: Kube, space: str) -> None:
    await pod(kube, space)
    labelled = {"metadata": {"labels": {"app": "x"}}}
    await kube.merge(Pod, "p", labelled, space)
    await kube.bind("p", space, "somewhere")
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await kube.merge_status(Pod, "p", ready, space)
    budgets = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
    budget: dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": space},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    }
    made = await kube.create(budget, budgets)
    seen = {"observedGeneration": made["metadata"]["generation"], "disruptionsAllowed": 0}
    counts = {"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    await kube.merge_status(budgets, "b", {"status": seen | counts}, space)
    with pytest.raises(errors.EvictionBlocked, match="disruption budget"):
        await kube.evict("p", space)


@pytest.mark.genuine
async def test_a_token_is_given_and_its_holder_may_do_little(
    only_genuine: Kube, access: ApiAccess
) -> None:
    kube, space = only_genuine, f"n{next(NAMES)}"
    await kube.create(Namespace(metadata=ObjectMeta(name=space)))
    await account(kube, space)
    text = await kube.request_token("default", space, seconds=600)
    anyone = ApiAccess(
        server=access.server, ca=access.ca, credentials=StaticCredentials(token(text))
    )
    async with KubeTransport(anyone) as transport:
        with pytest.raises(errors.KubeForbidden, match="cannot list resource"):
            await Kube(transport).list(Secret, space)
    nobody = ApiAccess(
        server=access.server, ca=access.ca, credentials=StaticCredentials(token("wrong"))
    )
    async with KubeTransport(nobody) as transport:
        with pytest.raises(errors.Unauthorized):
            await Kube(transport).list(Secret, space)
    assert issubclass(errors.Unauthorized, Denied)


async def test_errors_are_told_apart(kube: Kube, handler: Handler, space: str) -> None:
    await kube.create(note(space))
    with pytest.raises(errors.AlreadyExists):
        await kube.create(note(space))
    with pytest.raises(errors.NotFound):
        await kube.get(ConfigMap, "absent", space)
    with pytest.raises(errors.InvalidObject, match=r"metadata\.name"):
        await kube.create(note(space, "Not A Name"))
    with pytest.raises(errors.KubeBadRequest):
        await kube.list(ConfigMap, space, labels="a in")
    with pytest.raises(errors.NotFound):
        await kube.list(Resource("no.such", "v1", "things", "Thing"), space)
    with pytest.raises(errors.UnsupportedMedia):
        await Caller(handler).call("PATCH", ConfigMap.resource.path(space, "a"), body=b"{}")
    with pytest.raises(errors.NotAllowed):
        await Caller(handler).call("POST", "/api/v1", body=b"{}")


async def test_nothing_is_made_in_a_namespace_that_goes(kube: Kube, space: str) -> None:
    """Without a controller-manager the namespace stays terminating."""
    await kube.delete(Namespace, space)
    with pytest.raises(errors.NamespaceTerminating):
        await kube.create(note(space))


async def test_a_watch_tells_all_changes_and_resumes(kube: Kube, space: str) -> None:
    start = (await kube.list(ConfigMap, space)).resource_version
    watch = kube.watch(ConfigMap, space, resource_version=start, lasting=timedelta(seconds=2))
    made = await kube.create(note(space, x="1"))
    await kube.merge(ConfigMap, "a", {"data": {"x": "2"}}, space)
    first = [e async for e in watch]
    await kube.delete(ConfigMap, "a", space)
    second = [e async for e in watch]
    changes = [(e.type, e.object.uid) for e in first + second if isinstance(e, WatchEvent)]
    assert changes == [(t, made.uid) for t in ("ADDED", "MODIFIED", "DELETED")]


async def test_a_streaming_list_ends_with_a_bookmark(kube: Kube, space: str) -> None:
    await kube.create(note(space, "a"))
    await kube.create(note(space, "b"))
    names: list[str] = []
    watch = kube.watch(ConfigMap, space, initial=True)
    async with asyncio.timeout(120):
        async for event in watch:
            if isinstance(event, Bookmark) and event.initial_end:
                break
            assert isinstance(event, WatchEvent)
            names.append(event.object.name)
    assert sorted(names) == ["a", "b"]
    assert watch.resource_version


async def test_an_ancient_version_is_gone(kube: Kube, space: str) -> None:
    """The server keeps the changes of a custom kind only from its establishment on."""
    [tree] = crd.crds([cozystack.Tenant])
    await kube.apply(tree, CRDS)
    async with asyncio.timeout(30):
        async for event in kube.watch(CRDS, initial=True, fields={"metadata.name": NAME}):
            if isinstance(event, WatchEvent) and "Established" in str(event.object.get("status")):
                break
        while not await _served(kube, space):
            pass
    ancient = kube.watch(cozystack.Tenant, resource_version="1", lasting=timedelta(seconds=5))
    with pytest.raises(errors.Gone):
        [e async for e in ancient]


async def _served(kube: Kube, space: str) -> bool:
    try:
        return (await kube.list(cozystack.Tenant, space)).items == ()
    except (errors.NotFound, errors.TooManyRequests):  # its storage begins
        return False


async def test_a_version_of_the_future_is_not_yet(kube: Kube, space: str) -> None:
    with pytest.raises(errors.ResourceVersionTooNew):
        await kube.list(ConfigMap, space, resource_version="999999999", limit=0)


async def test_leases_and_events_of_ours_are_accepted(kube: Kube, space: str) -> None:
    now = SystemClock().now().replace(microsecond=0)
    spec = LeaseSpec(holder_identity="me", lease_duration_seconds=15, renew_time=micro_time(now))
    lease = await kube.create(Lease(metadata=ObjectMeta(name="l", namespace=space), spec=spec))
    assert lease.spec.renew_time == micro_time(now)
    event = Event(
        metadata=ObjectMeta(name="e", namespace=space),
        involved_object=InvolvedObject(kind="Lease", name="l", namespace=space, uid=lease.uid),
        reason="Tested",
        message="it was",
        type="Normal",
        first_timestamp=now,
        last_timestamp=now,
        count=1,
    )
    assert (await kube.create(event)).last_timestamp == now


async def test_owners_and_finalizers_are_written(kube: Kube, space: str) -> None:
    owner: Object = await kube.create(note(space, "owner"))
    meta = ObjectMeta(
        name="b",
        namespace=space,
        owner_references=(owner_reference(owner),),
        finalizers=("example.com/hold",),
    )
    made = await kube.create(ConfigMap(metadata=meta))
    await kube.delete(ConfigMap, "b", space)
    held = await kube.get(ConfigMap, "b", space)
    assert held.deleting
    assert held.metadata.controller == made.metadata.owner_references[0]
    free = msgspec.structs.replace(held.metadata, finalizers=())
    await kube.update(held, msgspec.structs.replace(held, metadata=free))
    assert await kube.find(ConfigMap, "b", space) is None
