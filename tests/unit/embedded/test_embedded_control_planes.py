"""What is said of a hosted control plane: the host's word reaches the person who asked."""

from typing import Any

import msgspec
import pytest

from moxwell.api.capi.controlplane import KamajiControlPlane
from moxwell.api.cozystack import Kubernetes
from moxwell.api.kamaji import TenantControlPlane
from moxwell.controllers.tenancy.cluster import plan as app_plan
from moxwell.embedded.clusterapi.controlplane import plan as outer
from moxwell.embedded.clusterapi.tenantcontrolplane import plan
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import Plane

OLD, NEW = "v1.35.0", "v1.36.3"
META = {"name": "c1", "namespace": "team", "uid": "u"}


def tenant(asked: str, answered: str = "", **status: Any) -> TenantControlPlane:
    spec = {"kubernetes": {"version": asked}, "controlPlane": {"deployment": {"replicas": 2}}}
    seen = {"version": {"version": answered, "status": "Ready"}} if answered else {}
    tree = {"metadata": META, "spec": spec, "status": {"kubernetesResources": seen, **status}}
    return msgspec.convert(tree, TenantControlPlane)


def plane(version: str, *, ready: bool, known: bool) -> Plane:
    return Plane(
        host="127.0.0.1", port=6443, version=version, ready=ready, known=known, says="it says so"
    )


@pytest.mark.parametrize(
    "before, found, phase, version",
    [
        pytest.param(
            tenant(OLD), plane(OLD, ready=False, known=False), "Provisioning", "", id="being made"
        ),
        pytest.param(tenant(OLD), plane(OLD, ready=True, known=True), "Ready", OLD, id="up"),
        pytest.param(
            tenant(OLD, OLD),
            plane(OLD, ready=False, known=True),
            "NotReady",
            OLD,
            id="a program died",
        ),
        pytest.param(
            tenant(NEW, OLD),
            plane(NEW, ready=False, known=True),
            "Upgrading",
            OLD,
            id="the new version starts, the old one answered last",
        ),
        pytest.param(tenant(NEW, OLD), plane(NEW, ready=True, known=True), "Ready", NEW, id="new"),
        pytest.param(tenant(OLD, OLD), None, "Sleeping", OLD, id="asleep"),
    ],
)
def test_the_phase_of_a_control_plane(
    before: TenantControlPlane, found: Plane | None, phase: str, version: str
) -> None:
    status = plan.describe(before, found)
    assert status.kubernetes_resources.version.status == phase
    assert status.kubernetes_resources.version.version == version
    (ready,) = status.conditions
    assert ready.status == ("True" if phase == "Ready" else "False")
    if found is not None:
        assert ready.message == "it says so"


def test_what_is_not_installed_is_told_to_who_asked_for_a_cluster() -> None:
    said = "Kubernetes v1.37.0 is not installed"
    row = {"type": "Ready", "status": "False", "reason": "ReleaseMissing", "message": said}
    hosted = tenant("v1.37.0", conditions=[row])
    kamaji = msgspec.convert({"metadata": META, "spec": {"version": "v1.37.0"}}, KamajiControlPlane)
    status = outer.describe(kamaji, hosted)
    assert [c.message for c in status.conditions] == [said]
    seen = app_plan.Seen(plane=msgspec.structs.replace(kamaji, status=status))
    app = msgspec.convert({"metadata": META, "spec": {"version": "v1.37.0"}}, Kubernetes)
    told = {c.type: c.message for c in app_plan.describe(app, seen).conditions}
    assert told["Ready"] == told["ControlPlaneReady"] == said
