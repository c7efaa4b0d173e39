"""The Machine controller: links, node, drain, order of deletion, status without own status."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from moxwell.api.capi.core import Machine
from moxwell.api.capi.shared import ContractRef
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.embedded.clusterapi.machine.cluster_answers import GRACE_SECONDS, ClusterAnswers
from moxwell.embedded.clusterapi.machine.controller import is_progress, is_text
from moxwell.embedded.clusterapi.machine.describe import describe
from moxwell.embedded.clusterapi.machine.plan import (
    DETACH_STARTED,
    DRAIN_STARTED,
    NODE_NAME,
    DeleteNode,
    Drain,
    InitializeNode,
    MachineMove,
    ObservedMachine,
    next_move,
    stamp,
)
from moxwell.embedded.clusterapi.machine.see import is_due, must_be_evicted, see_machine
from moxwell.embedded.clusterapi.machine.tenant_nodes import SharedNodeLists
from moxwell.embedded.clusterapi.references import ReferenceResolver
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.unstructured import Unstructured
from moxwell.runtime.writes import Writes
from moxwell.testing.loop import LoopClock, run_virtual

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONG_AGO = stamp(NOW - timedelta(hours=1))
OWNER = {"uid": "m", "controller": True, "kind": "Machine", "name": "m", "apiVersion": "x"}


def machine(
    *, deleting: bool = False, annotations: Json | None = None, provider: str = "p", **deletion: Any
) -> Machine:
    meta: Json = {
        "name": "m",
        "namespace": "team",
        "uid": "m",
        "annotations": annotations or {},
        "labels": {"node-role.kubernetes.io/worker": "", "team": "a"},
    }
    meta |= {"deletionTimestamp": LONG_AGO} if deleting else {}
    spec = {
        "clusterName": "c1",
        "bootstrap": {"dataSecretName": "s"},
        "providerID": provider,
        "deletion": deletion,
    }
    return msgspec.convert({"metadata": meta, "spec": spec}, Machine)


def part(*, ready: bool = True, deleting: bool = False, owned: bool = True) -> Unstructured:
    meta: Json = {"name": "m", "namespace": "team", "uid": "i", "resourceVersion": "1"}
    if owned:
        meta |= {"ownerReferences": [OWNER], "labels": {"cluster.x-k8s.io/cluster-name": "c1"}}
    meta |= {"deletionTimestamp": LONG_AGO} if deleting else {}
    address = {"type": "InternalIP", "address": "10.0.0.5"}
    status = {"initialization": {"provisioned": ready}, "addresses": [address]}
    body = {"metadata": meta, "spec": {"providerID": "p"}, "status": status}
    return Unstructured(ProxmoxMachine.resource, body)


def node(*, initialized: bool = True) -> Json:
    taints = [] if initialized else [{"key": "node.cluster.x-k8s.io/uninitialized"}]
    labels = {"node-role.kubernetes.io/worker": ""}
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": "n1", "labels": labels},
        "spec": {"taints": taints},
        "status": {"conditions": [ready], "nodeInfo": {"kubeletVersion": "v1"}},
    }


def seen(**more: Any) -> ObservedMachine:
    return ObservedMachine(now=NOW, **more)


KNOWN = {NODE_NAME: "n1"}
PODS = (("default", "web"),)


@pytest.mark.parametrize(
    ("obj", "observed", "expected"),
    [
        pytest.param(machine(), seen(), "WaitingForInfrastructure", id="no infrastructure yet"),
        pytest.param(
            machine(provider=""),
            seen(infrastructure=part()),
            Writes,
            id="provider ID is copied",
        ),
        pytest.param(
            machine(), seen(infrastructure=part(owned=False)), Writes, id="the object is adopted"
        ),
        pytest.param(machine(), seen(infrastructure=part()), "WaitingForNode", id="no node yet"),
        pytest.param(
            machine(),
            seen(infrastructure=part(), node=node(initialized=False)),
            InitializeNode,
            id="a new node is initialized",
        ),
        pytest.param(
            machine(),
            seen(infrastructure=part(), node=node()),
            InitializeNode,
            id="the name of the node is recorded",
        ),
        pytest.param(
            machine(annotations=KNOWN), seen(infrastructure=part(), node=node()), Done, id="done"
        ),
    ],
)
def test_next_move(obj: Machine, observed: ObservedMachine, expected: Any) -> None:
    check(next_move(obj, observed), expected)


def check(move: MachineMove, expected: Any) -> None:
    if isinstance(expected, str):
        assert getattr(move, "reason", "") == expected
    else:
        assert isinstance(move, expected)


@pytest.mark.parametrize(
    ("obj", "observed", "expected"),
    [
        pytest.param(
            machine(deleting=True),
            seen(infrastructure=part(), node=node(), pods=PODS),
            Drain,
            id="pods are evicted first",
        ),
        pytest.param(
            machine(
                deleting=True, annotations={DRAIN_STARTED: LONG_AGO}, nodeDrainTimeoutSeconds=60
            ),
            seen(infrastructure=part(), node=node(), pods=PODS),
            "WaitingForInfrastructureDeletion",
            id="no longer than the drain timeout",
        ),
        pytest.param(
            machine(deleting=True),
            seen(infrastructure=part(), node=node(), attachments=1),
            Writes,
            id="the wait for volumes is recorded",
        ),
        pytest.param(
            machine(deleting=True, annotations={DETACH_STARTED: LONG_AGO}),
            seen(infrastructure=part(), node=node(), attachments=1),
            Wait,
            id="then volumes must be detached",
        ),
        pytest.param(
            machine(
                deleting=True,
                annotations={DETACH_STARTED: LONG_AGO},
                nodeVolumeDetachTimeoutSeconds=60,
            ),
            seen(infrastructure=part(), node=node(), attachments=1),
            "WaitingForInfrastructureDeletion",
            id="no longer than the detach timeout",
        ),
        pytest.param(
            machine(deleting=True, annotations=KNOWN),
            seen(infrastructure=part(), tenant_answers=False),
            "WaitingForCluster",
            id="a node that cannot be drained is waited for",
        ),
        pytest.param(
            machine(deleting=True),
            seen(infrastructure=part(), tenant_answers=False),
            "WaitingForInfrastructureDeletion",
            id="a machine that never had a node is deleted",
        ),
        pytest.param(
            machine(deleting=True, annotations=KNOWN),
            seen(infrastructure=part(), cluster_deleting=True, pods=PODS),
            "WaitingForInfrastructureDeletion",
            id="nothing is drained when the cluster is deleted",
        ),
        pytest.param(
            machine(deleting=True),
            seen(bootstrap=part(deleting=True)),
            "WaitingForBootstrapDeletion",
            id="the bootstrap configuration is deleted second",
        ),
        pytest.param(machine(deleting=True), seen(node=node()), DeleteNode, id="then the Node"),
        pytest.param(machine(deleting=True), seen(), Done, id="then nothing is left"),
    ],
)
def test_next_move_of_a_deletion(obj: Machine, observed: ObservedMachine, expected: Any) -> None:
    check(next_move(obj, observed), expected)


@pytest.mark.parametrize(
    ("obj", "observed", "phase", "ready", "node_name"),
    [
        pytest.param(machine(), seen(), "Provisioning", "False", None, id="provisioning"),
        pytest.param(
            machine(), seen(infrastructure=part()), "Provisioned", "False", None, id="no node yet"
        ),
        pytest.param(
            machine(), seen(infrastructure=part(), node=node()), "Running", "True", "n1", id="runs"
        ),
        pytest.param(
            machine(annotations=KNOWN),
            seen(infrastructure=part(), tenant_answers=False),
            "Provisioned",
            "Unknown",
            "n1",
            id="an unreachable cluster keeps the recorded node",
        ),
        pytest.param(machine(deleting=True), seen(), "Deleting", "False", None, id="deleted"),
    ],
)
def test_status(
    obj: Machine, observed: ObservedMachine, phase: str, ready: str, node_name: str | None
) -> None:
    status = describe(obj, observed, next_move(obj, observed))
    assert status is not None
    assert status.phase == phase
    assert {c.type: c.status for c in status.conditions}["Ready"] == ready
    assert (status.node_ref.name if status.node_ref else None) == node_name


def test_what_is_known_of_a_node_stays_while_an_answer_is_awaited() -> None:
    obj = machine(annotations=KNOWN)
    observed = seen(infrastructure=part(), tenant_answers=False, answer_awaited=True)
    assert describe(obj, observed, next_move(obj, observed)) is None


def test_an_answer_is_awaited_for_a_while_after_the_start_and_after_each_answer() -> None:
    async def story() -> None:
        answers, cluster = ClusterAnswers(LoopClock()), Key("team", "c1")
        await asyncio.sleep(GRACE_SECONDS - 1)
        assert answers.is_awaited(cluster)
        await asyncio.sleep(2)
        assert not answers.is_awaited(cluster)
        answers.answered(cluster)
        await asyncio.sleep(GRACE_SECONDS - 1)
        assert answers.is_awaited(cluster)
        assert not answers.is_awaited(Key("team", "c2"))

    run_virtual(story())


def test_the_start_of_a_drain_is_recorded_in_the_move_and_in_the_status() -> None:
    obj = machine(deleting=True)
    observed = seen(infrastructure=part(), node=node(), pods=PODS)
    move = next_move(obj, observed)
    assert isinstance(move, Drain)
    assert move.record is not None
    assert move.record.change == {"metadata": {"annotations": {DRAIN_STARTED: stamp(NOW)}}}
    status = describe(obj, observed, move)
    assert status is not None
    deletion = status.deletion
    assert deletion is not None
    assert deletion.node_drain_start_time == NOW


@pytest.mark.parametrize(
    ("change", "evicted"),
    [
        pytest.param({}, True, id="an ordinary pod"),
        pytest.param({"status": {"phase": "Succeeded"}}, False, id="finished"),
        pytest.param(
            {"metadata": {"ownerReferences": [{"kind": "DaemonSet"}]}}, False, id="a daemon"
        ),
        pytest.param(
            {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}, False, id="static"
        ),
    ],
)
def test_which_pods_are_evicted(change: Json, evicted: bool) -> None:
    assert must_be_evicted({"metadata": {}} | change) is evicted


def provider_object(**changes: Any) -> ProxmoxMachine:
    body = {**part().obj, **changes}
    return msgspec.convert({**body, "metadata": {**part().obj["metadata"], **body["metadata"]}},
                           ProxmoxMachine)  # fmt: skip


def condition_of(message: str) -> Json:
    return {**part().obj["status"], "conditions": [
        {"type": "Ready", "status": "False", "reason": "X", "message": message}]}  # fmt: skip


@pytest.mark.parametrize(
    "change, progress",
    [
        ({"status": condition_of("cloning")}, False),
        ({"status": {**part().obj["status"], "nextMove": "Start"}}, False),
        ({"status": {"initialization": {"provisioned": False}}}, True),
        ({"status": {**part().obj["status"], "failureDomain": "z"}}, True),
        ({"spec": {"providerID": "q"}}, True),
        ({"metadata": {"deletionTimestamp": LONG_AGO}}, True),
        ({"metadata": {"ownerReferences": []}}, True),
    ],
)
def test_a_change_of_a_part_that_only_conditions_show_may_wait(
    change: Json, progress: bool
) -> None:
    before, after = provider_object(), provider_object(**change)
    assert (is_progress(before, after), is_text(before, after)) == (progress, not progress)
    assert is_progress(None, after)
    assert is_progress(before, None)


class LiveReader:
    """Records what is read live; an infrastructure object has the provider ID ``live``."""

    def __init__(self) -> None:
        self.read: list[str] = []

    async def find(self, kind: Any, name: str, namespace: str = "") -> Any:
        self.read.append(getattr(kind, "kind", None) or kind.resource.kind)
        live = {**part().obj, "spec": {"providerID": "live"}}
        return live if kind == ProxmoxMachine.resource else None


@pytest.mark.parametrize(
    "cached, deleting, provider, read",
    [
        (provider_object(), False, "p", []),
        (None, False, "live", ["ProxmoxMachine"]),
        (provider_object(metadata={"ownerReferences": []}), False, "live", ["ProxmoxMachine"]),
        (provider_object(), True, "live", ["ProxmoxMachine", "Cluster"]),
    ],
)
def test_parts_are_read_live_only_if_missing_not_adopted_or_being_deleted(
    cached: ProxmoxMachine | None, deleting: bool, provider: str, read: list[str]
) -> None:
    async def story() -> None:
        cache: Cache[Any] = Cache(ProxmoxMachine)
        if cached is not None:
            cache.put(cached)
        ref = ContractRef(api_group=ProxmoxMachine.resource.group, kind="ProxmoxMachine", name="m")
        caches = {(ref.api_group, ref.kind): cache}
        resolver = ReferenceResolver([ProxmoxMachine.resource], caches)
        base = machine(deleting=deleting)
        spec = msgspec.structs.replace(base.spec, infrastructure_ref=ref)
        obj = msgspec.structs.replace(base, spec=spec)
        reader: Any = LiveReader()

        async def no_tenant(_: Key) -> None:
            return None

        nodes = SharedNodeLists(LoopClock())
        found = await see_machine(obj, reader, resolver, no_tenant, nodes, NOW)
        assert found.infrastructure is not None
        assert found.infrastructure.obj["spec"]["providerID"] == provider
        assert reader.read == read

    run_virtual(story())


SILENT = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}


class TenantWithLoad:
    """A node with pods and a volume."""

    def __init__(self, silent: bool) -> None:
        due = {"deletionTimestamp": LONG_AGO}
        pods = [
            {"metadata": {"namespace": "a", "name": n, **m}} for n, m in (("new", {}), ("due", due))
        ]
        self._node = {**node(), **(SILENT if silent else {})}
        self._rows = {"Pod": pods, "VolumeAttachment": [{"spec": {"nodeName": "n1"}}]}

    async def find(self, kind: Any, name: str, namespace: str = "") -> Any:
        return self._node

    async def list(self, kind: Any, **more: Any) -> Any:
        return SimpleNamespace(items=self._rows.get(kind.kind, [self._node]))


@pytest.mark.parametrize(
    ("silent", "pods", "volumes", "grace"),
    [(False, ["new", "due"], 1, None), (True, ["new"], 0, 1)],
    ids=["a kubelet that reports", "a silent kubelet"],
)
def test_a_silent_kubelet_is_not_waited_for(
    silent: bool, pods: list[str], volumes: int, grace: int | None
) -> None:
    async def story() -> None:
        tenant: Any = TenantWithLoad(silent)

        async def find_tenant(_: Key) -> Any:
            return tenant

        resolver = ReferenceResolver([ProxmoxMachine.resource], {})
        obj, nodes = machine(deleting=True, annotations=KNOWN), SharedNodeLists(LoopClock())
        reader: Any = SimpleNamespace(find=tenant_cluster)
        seen_now = await see_machine(obj, reader, resolver, find_tenant, nodes, NOW)
        assert ([name for _, name in seen_now.pods], seen_now.attachments) == (pods, volumes)
        move = next_move(obj, replace(seen_now, infrastructure=part()))
        assert isinstance(move, Drain)
        assert move.grace == grace

    run_virtual(story())


async def tenant_cluster(kind: Any, name: str, namespace: str = "") -> Any:
    return SimpleNamespace(deleting=False)


def test_a_pod_is_due_a_second_after_its_deletion() -> None:
    def pod(seconds: int) -> Json:
        return {"metadata": {"deletionTimestamp": stamp(NOW - timedelta(seconds=seconds))}}

    assert [is_due(pod(seconds), NOW) for seconds in (-30, 1, 2)] == [False, False, True]
    assert not is_due({"metadata": {}}, NOW)
