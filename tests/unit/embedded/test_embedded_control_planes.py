"""Hosted control planes: moves, phases and how errors reach the Cluster API status."""

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from moxwell.api.capi.controlplane import KamajiControlPlane
from moxwell.api.capi.core import Cluster
from moxwell.api.kamaji import TenantControlPlane
from moxwell.clock import SystemClock
from moxwell.embedded.clusterapi.controlplane import plan as kamaji
from moxwell.embedded.clusterapi.tenantcontrolplane import plan
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import (
    HostedControlPlane,
    HostedControlPlaneSpec,
    ObservedTenantControlPlane,
)
from moxwell.embedded.clusterapi.tenantcontrolplane.states import ControlPlaneStates
from moxwell.errors import Invalid
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.unstructured import Unstructured
from moxwell.runtime.writes import Create, Delete, Merge, Writes

Json = dict[str, Any]
OLD, NEW = "v1.35.0", "v1.36.3"
META = {"name": "c1", "namespace": "team", "uid": "u"}
KEY = Key("team", "c1")


def tenant(version: str, *, replicas: int = 2, deleting: bool = False) -> TenantControlPlane:
    spec = {
        "kubernetes": {"version": version},
        "controlPlane": {"deployment": {"replicas": replicas}},
    }
    meta = META | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {})
    return msgspec.convert({"metadata": meta, "spec": spec}, TenantControlPlane)


def state(version: str, *, ready: bool, initialized: bool = True) -> HostedControlPlane:
    return HostedControlPlane(
        host="127.0.0.1",
        port=6443,
        version=version,
        ready=ready,
        initialized=initialized,
        message="a message",
        admin_kubeconfig="kubeconfig",
    )


def seen(
    found: HostedControlPlane | None, last: str = "", *, published: bool = False
) -> ObservedTenantControlPlane:
    secrets: dict[str, Json | None] = {}
    if published and found is not None:
        secrets = {s["metadata"]["name"]: s for s in plan.secrets(tenant(OLD), found)}
    elif last:
        meta = {"annotations": {plan.VERSION: last}}
        secrets = {"c1-admin-kubeconfig": {"metadata": meta, "data": {}}}
    return ObservedTenantControlPlane(found, secrets)


UP = state(OLD, ready=True)
WAITING = replace(UP, addons="coredns: 0 of 2 pods available")


@pytest.mark.parametrize(
    ("obj", "observed", "expected"),
    [
        pytest.param(
            tenant(OLD), seen(None), plan.EnsureControlPlane, id="an unknown one is ensured"
        ),
        pytest.param(
            tenant(OLD),
            seen(state(OLD, ready=False)),
            plan.EnsureControlPlane,
            id="one that is not ready is ensured again",
        ),
        pytest.param(tenant(OLD), seen(UP), Writes, id="credentials are published"),
        pytest.param(tenant(OLD), seen(UP, published=True), Done, id="nothing to do"),
        pytest.param(
            tenant(OLD),
            seen(WAITING, published=True),
            plan.EnsureControlPlane,
            id="add-ons that wait are looked at again",
        ),
        pytest.param(
            tenant(OLD, replicas=0), seen(UP), plan.SleepControlPlane, id="no replicas: stopped"
        ),
        pytest.param(tenant(OLD, deleting=True), seen(UP), plan.DestroyControlPlane, id="deleted"),
    ],
)
def test_next_move_of_a_tenant_control_plane(
    obj: TenantControlPlane, observed: ObservedTenantControlPlane, expected: type
) -> None:
    assert isinstance(plan.next_move(obj, observed), expected)


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        pytest.param(NEW, OLD, "downgraded", id="downgrade"),
        pytest.param("v1.34.0", NEW, "one minor version", id="two minor versions"),
        pytest.param("", "latest", "not a Kubernetes version", id="no version"),
    ],
)
def test_a_version_that_cannot_be_reached_is_invalid(before: str, after: str, word: str) -> None:
    with pytest.raises(Invalid, match=word):
        plan.next_move(tenant(after), seen(None, before))


@pytest.mark.parametrize(
    ("obj", "observed", "phase", "version"),
    [
        pytest.param(
            tenant(OLD),
            seen(state(OLD, ready=False, initialized=False)),
            "Provisioning",
            "",
            id="being created",
        ),
        pytest.param(tenant(OLD), seen(UP), "Ready", OLD, id="ready"),
        pytest.param(
            tenant(OLD), seen(state(OLD, ready=False), OLD), "NotReady", OLD, id="a program ended"
        ),
        pytest.param(
            tenant(NEW),
            seen(state(NEW, ready=False), OLD),
            "Upgrading",
            OLD,
            id="the new version starts, the old one answered last",
        ),
        pytest.param(tenant(NEW), seen(state(NEW, ready=True), OLD), "Ready", NEW, id="upgraded"),
        pytest.param(tenant(OLD, replicas=0), seen(None, OLD), "Sleeping", OLD, id="no replicas"),
    ],
)
def test_the_phase_of_a_tenant_control_plane(
    obj: TenantControlPlane, observed: ObservedTenantControlPlane, phase: str, version: str
) -> None:
    status = plan.describe(obj, observed)
    assert status is not None
    assert status.kubernetes_resources.version.status == phase
    assert status.kubernetes_resources.version.version == version
    (ready,) = status.conditions
    assert ready.status == ("True" if phase == "Ready" else "False")
    assert ready.message == ("a message" if observed.state else "stopped: replicas is 0")


def test_an_unknown_state_leaves_the_status_as_it_is() -> None:
    assert plan.describe(tenant(OLD), seen(None)) is None


@pytest.mark.parametrize(
    ("addons", "row"),
    [
        (None, None),
        ("", ("True", "AddonsRun", "")),
        (WAITING.addons, ("False", "AddonsWait", WAITING.addons)),
    ],
)
def test_a_condition_says_whether_add_ons_run(
    addons: str | None, row: tuple[str, str, str] | None
) -> None:
    status = plan.describe(tenant(OLD), seen(replace(UP, addons=addons)))
    assert status is not None
    found = [(c.status, c.reason, c.message) for c in status.conditions if c.type == "AddonsReady"]
    assert found == ([] if row is None else [row])
    rows = [msgspec.to_builtins(c) for c in status.conditions]
    copied = kamaji.describe(control_plane(), observed(hosted("Ready", conditions=rows)))
    assert [c.type for c in copied.conditions[1:]] == (["AddonsReady"] if row else [])


class Runner:
    """Reports a state; with ``states`` set, it changes during the call."""

    def __init__(self) -> None:
        self.states: ControlPlaneStates | None = None

    async def ensure(self, spec: HostedControlPlaneSpec) -> HostedControlPlane:
        if self.states is not None:
            self.states.forget(spec.key)
        return UP

    async def sleep(self, key: Key) -> None: ...

    async def destroy(self, key: Key) -> None: ...


def test_a_report_is_kept_for_its_spec_until_the_state_changes() -> None:
    async def story() -> None:
        runner = Runner()
        states = ControlPlaneStates(runner, SystemClock())
        spec, other = plan.spec_of(tenant(OLD)), plan.spec_of(tenant(NEW))
        await states.ensure(spec)
        assert states.find(spec) is UP
        assert states.find(other) is None
        states.forget(KEY)
        assert states.find(spec) is None
        runner.states = states
        await states.ensure(spec)
        assert states.find(spec) is None  # it changed during the call

    asyncio.run(story())


# KamajiControlPlane


def control_plane(*, deleting: bool = False, **spec: Any) -> KamajiControlPlane:
    meta = META | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {})
    return msgspec.convert({"metadata": meta, "spec": {"version": OLD, **spec}}, KamajiControlPlane)


def hosted(status: str = "Ready", **more: Any) -> Json:
    version = {"version": {"version": OLD, "status": status}}
    spec = kamaji.tenant_spec(control_plane(), CLUSTER)
    reported = {"kubernetesResources": version, "controlPlaneEndpoint": "10.0.0.1:6443", **more}
    return {"metadata": META, "spec": spec, "status": reported}


CLUSTER = msgspec.convert({"metadata": META, "spec": {}}, Cluster)
SECRETS: dict[str, Json | None] = {
    name: {"metadata": {"name": name}, "data": {}} for name in ("c1-admin-kubeconfig", "c1-ca")
}
INFRA = Unstructured(
    TenantControlPlane.resource,
    {"metadata": META, "spec": {"controlPlaneEndpoint": {"host": "10.0.0.9", "port": 6443}}},
)


def observed(tenant: Json | None, **more: Any) -> kamaji.ObservedKamajiControlPlane:
    return kamaji.ObservedKamajiControlPlane(tenant, CLUSTER, **more)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(kamaji.ObservedKamajiControlPlane(), Wait, id="no cluster owns it"),
        pytest.param(observed(None), (Create,), id="it is created"),
        pytest.param(observed(hosted("Provisioning")), Wait, id="it is not ready yet"),
        pytest.param(
            observed(hosted(), secrets=SECRETS),
            (Create, Merge, Merge),
            id="credentials and endpoint are handed over",
        ),
    ],
)
def test_next_move_of_a_kamaji_control_plane(
    found: kamaji.ObservedKamajiControlPlane, expected: Any
) -> None:
    move = kamaji.next_move(control_plane(), found)
    if isinstance(move, Writes):
        assert tuple(map(type, move.writes)) == expected
    else:
        assert isinstance(move, expected)


def test_a_deleted_control_plane_deletes_its_tenant_control_plane_first() -> None:
    obj = control_plane(deleting=True)
    move = kamaji.next_move(obj, observed(hosted()))
    assert isinstance(move, Writes)
    assert isinstance(move.writes[0], Delete)
    assert kamaji.next_move(obj, observed(None)) == Done()


def test_another_endpoint_of_the_infrastructure_is_an_error() -> None:
    with pytest.raises(Invalid, match="remove one"):
        kamaji.next_move(control_plane(), observed(hosted(), secrets=SECRETS, infrastructure=INFRA))


@pytest.mark.parametrize(
    ("cluster_host", "expected"),
    [("10.0.0.9", 3), ("vip.example", 2)],
    ids=["the endpoint of the cluster is ours", "the endpoint of the cluster is the user's"],
)
def test_a_new_address_replaces_the_old_one(cluster_host: str, expected: int) -> None:
    old = {"host": "10.0.0.9", "port": 6443}
    endpoint = {"host": cluster_host, "port": 6443}
    cluster = msgspec.convert(
        {"metadata": META, "spec": {"controlPlaneEndpoint": endpoint}}, Cluster
    )
    own = control_plane(controlPlaneEndpoint=old)
    tenant = hosted() | {"spec": kamaji.tenant_spec(own, cluster)}
    seen = kamaji.ObservedKamajiControlPlane(tenant, cluster, INFRA, SECRETS)
    move = kamaji.next_move(own, seen)
    assert isinstance(move, Writes)
    merges = [w for w in move.writes if isinstance(w, Merge) and "spec" in w.change]
    assert len(merges) == expected
    assert {str(m.change["spec"]["controlPlaneEndpoint"]["host"]) for m in merges} == {"10.0.0.1"}
    assert merges[-1].kind is KamajiControlPlane  # the record of the old endpoint is written last


@pytest.mark.parametrize(
    ("reported", "host"), [("10.0.0.1:6443", "10.0.0.1"), ("[fd00::1]:6443", "fd00::1")]
)
def test_the_endpoint_of_a_tenant(reported: str, host: str) -> None:
    tenant = hosted() | {"status": {"controlPlaneEndpoint": reported}}
    found = kamaji.tenant_endpoint(msgspec.convert(tenant, TenantControlPlane))
    assert found is not None
    assert (found.host, found.port) == (host, 6443)


def test_the_kubeconfig_secret_records_that_a_control_plane_was_initialized() -> None:
    down = hosted("NotReady")
    before = kamaji.describe(control_plane(), observed(down))
    after = kamaji.describe(
        control_plane(), observed(down, secrets={"c1-kubeconfig": {"metadata": {}}})
    )
    assert not before.initialization.control_plane_initialized
    assert after.initialization.control_plane_initialized


def test_the_message_of_the_tenant_control_plane_is_copied() -> None:
    message = "Kubernetes v1.37.0 is not installed"
    row = {"type": "Ready", "status": "False", "reason": "ReleaseMissing", "message": message}
    status = kamaji.describe(control_plane(), observed(hosted("", conditions=[row])))
    assert [c.message for c in status.conditions] == [message]
