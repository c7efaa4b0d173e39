"""The Cluster controller: adoption, endpoint, order of deletion, status."""

from typing import Any

import msgspec
import pytest

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.embedded.clusterapi.cluster.plan import (
    ClusterReason,
    ObservedCluster,
    describe,
    next_move,
)
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.unstructured import Unstructured
from moxwell.runtime.writes import Writes

Json = dict[str, Any]
ENDPOINT = {"host": "10.0.0.1", "port": 6443}
OWNER = {"uid": "u", "controller": True, "kind": "Cluster", "name": "c1", "apiVersion": "x"}


def cluster(*, deleting: bool = False, **spec: Any) -> Cluster:
    meta = {"name": "c1", "namespace": "team", "uid": "u"}
    meta |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
    return msgspec.convert({"metadata": meta, "spec": spec}, Cluster)


def part(
    *, owned: bool = True, ready: bool = True, endpoint: bool = True, deleting: bool = False
) -> Unstructured:
    meta: Json = {"name": "c1", "namespace": "team", "uid": "p", "resourceVersion": "1"}
    if owned:
        meta |= {
            "ownerReferences": [OWNER],
            "labels": {"cluster.x-k8s.io/cluster-name": "c1"},
        }
    meta |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
    status = {"initialization": {"provisioned": ready, "controlPlaneInitialized": ready}}
    spec = {"controlPlaneEndpoint": ENDPOINT} if endpoint else {}
    return Unstructured(ProxmoxCluster.resource, {"metadata": meta, "spec": spec, "status": status})


def machine(*, ready: bool = True) -> Machine:
    condition = {
        "type": "Ready",
        "status": str(ready),
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reason": "r",
    }
    return msgspec.convert(
        {
            "metadata": {"name": "m", "namespace": "team", "uid": "m"},
            "spec": {"clusterName": "c1", "bootstrap": {}},
            "status": {"conditions": [condition]},
        },
        Machine,
    )


@pytest.mark.parametrize(
    ("obj", "seen", "expected"),
    [
        pytest.param(
            cluster(), ObservedCluster(), "WaitingForInfrastructure", id="no infrastructure yet"
        ),
        pytest.param(
            cluster(),
            ObservedCluster(part(owned=False, endpoint=False)),
            "patch ProxmoxCluster c1",
            id="the infrastructure is adopted",
        ),
        pytest.param(
            cluster(), ObservedCluster(part()), "patch Cluster c1", id="the endpoint is copied"
        ),
        pytest.param(
            cluster(),
            ObservedCluster(part(owned=False)),
            "patch ProxmoxCluster c1, patch Cluster c1",
            id="both in one move",
        ),
        pytest.param(
            cluster(),
            ObservedCluster(part(endpoint=False)),
            "WaitingForControlPlaneEndpoint",
            id="no part has an endpoint",
        ),
        pytest.param(
            cluster(controlPlaneEndpoint=ENDPOINT), ObservedCluster(part()), "done", id="done"
        ),
        pytest.param(
            cluster(deleting=True),
            ObservedCluster(part(), part(), (machine(),)),
            "delete Machine m",
            id="machines are deleted first",
        ),
        pytest.param(
            cluster(deleting=True),
            ObservedCluster(part(), part(deleting=True)),
            "WaitingForControlPlaneDeletion",
            id="then the control plane",
        ),
        pytest.param(
            cluster(deleting=True),
            ObservedCluster(part()),
            "delete ProxmoxCluster c1",
            id="then the infrastructure",
        ),
        pytest.param(cluster(deleting=True), ObservedCluster(), "done", id="then nothing is left"),
    ],
)
def test_next_move(obj: Cluster, seen: ObservedCluster, expected: str) -> None:
    move = next_move(obj, seen)
    text = "done" if isinstance(move, Done) else str(move)
    assert (move.reason if isinstance(move, Wait) else text) == expected


@pytest.mark.parametrize(
    ("seen", "phase", "available"),
    [
        pytest.param(ObservedCluster(), "Pending", "False", id="nothing yet"),
        pytest.param(ObservedCluster(part(ready=False)), "Provisioning", "False", id="starting"),
        pytest.param(
            ObservedCluster(part(), part(), (machine(),)), "Provisioned", "True", id="available"
        ),
        pytest.param(
            ObservedCluster(part(), part(), (machine(ready=False),)),
            "Provisioned",
            "False",
            id="a worker is not ready",
        ),
    ],
)
def test_status(seen: ObservedCluster, phase: str, available: str) -> None:
    status = describe(cluster(controlPlaneEndpoint=ENDPOINT), seen)
    assert status.phase == phase
    assert {c.type: c.status for c in status.conditions}["Available"] == available
    assert bool(status.initialization.control_plane_initialized) is (phase == "Provisioned")


def test_reasons_are_words_of_the_enum() -> None:
    status = describe(cluster(), ObservedCluster())
    assert {c.reason for c in status.conditions} <= set(ClusterReason)
    assert isinstance(next_move(cluster(), ObservedCluster(part(owned=False))), Writes)
