"""TalosControlPlanes: Secrets, Machines one after the other, and where etcd begins."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import yaml

from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.talos import TalosConfig, TalosControlPlane
from moxwell.bootstrap import talos_secrets
from moxwell.embedded.clusterapi.machine.plan import NODE_NAME
from moxwell.embedded.clusterapi.machineset.plan import MissingPart
from moxwell.embedded.clusterapi.taloscontrolplane import plan, secrets
from moxwell.embedded.clusterapi.taloscontrolplane.plan import (
    ETCD_MACHINE,
    ObservedTalosControlPlane,
)
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Create, Merge, Writes

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRETS = talos_secrets.create_secrets(NOW)
REF = {"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha2", "name": "t"}


def control_plane(replicas: int = 3, etcd: str = "", **meta: Any) -> TalosControlPlane:
    annotations = {ETCD_MACHINE: etcd} if etcd else {}
    tree = {
        "metadata": {
            "name": "cp",
            "namespace": "d",
            "uid": "u",
            "annotations": annotations,
            **meta,
        },
        "spec": {
            "replicas": replicas,
            "version": "v1.34.1",
            "infrastructureTemplate": REF | {"kind": "ProxmoxMachineTemplate"},
            "controlPlaneConfig": {"controlplane": {"generateType": "controlplane"}},
        },
    }
    return msgspec.convert(tree, TalosControlPlane)


def cluster(*, provisioned: bool = True) -> Cluster:
    tree = {
        "metadata": {"name": "c", "namespace": "d"},
        "spec": {"controlPlaneEndpoint": {"host": "192.0.2.5", "port": 6443}},
        "status": {"initialization": {"infrastructureProvisioned": provisioned}},
    }
    return msgspec.convert(tree, Cluster)


def machine(
    name: str, *, joined: bool = True, address: str = "192.0.2.11", deleting: bool = False
) -> Machine:
    meta: dict[str, Any] = {"name": name, "namespace": "d", "uid": name}
    if joined:
        meta["annotations"] = {NODE_NAME: name}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ready = [{"type": "InfrastructureReady", "status": "True", "reason": "Ready"}]
    addresses = [{"type": "Hostname", "address": name}]
    addresses += [{"type": "InternalIP", "address": address}] if address else []
    status = {"conditions": ready if joined else [], "addresses": addresses}
    tree = {"metadata": meta, "spec": {"clusterName": "c"}, "status": status}
    return msgspec.convert(tree, Machine)


def seen(*machines: Machine, **rest: Any) -> ObservedTalosControlPlane:
    given: dict[str, Any] = {"cluster": cluster(), "secrets": SECRETS} | rest
    return ObservedTalosControlPlane(now=NOW, machines=machines, **given)


NEW = machine("a", joined=False)
TABLE = [
    pytest.param("", seen(cluster=None), "WaitingForCluster", id="no cluster"),
    pytest.param("", seen(secrets=None), plan.CreateSecrets, id="no secrets"),
    pytest.param(
        "", seen(cluster=cluster(provisioned=False)), "WaitingForInfrastructure", id="no endpoint"
    ),
    pytest.param("", seen(due=({},)), plan.WriteSecrets, id="a Secret is due"),
    pytest.param("", seen(), Writes, id="the first machine"),
    pytest.param(
        "", seen(machine("a", joined=False, address="")), "WaitingForMachine", id="no address yet"
    ),
    pytest.param("", seen(NEW), Writes, id="it is recorded first"),
    pytest.param("a", seen(NEW), plan.BeginEtcd, id="etcd begins there"),
    pytest.param("b", seen(NEW), "EtcdLost", id="etcd began on a machine that is gone"),
    pytest.param("b", seen(), "EtcdLost", id="and there is no other"),
    pytest.param(
        "a",
        seen(machine("a", joined=False, deleting=True)),
        "WaitingForMachine",
        id="it is deleted",
    ),
    pytest.param("a", seen(machine("a")), Writes, id="the second machine"),
    pytest.param(
        "a",
        seen(machine("a"), machine("b", joined=False)),
        "WaitingForMachine",
        id="which is not asked",
    ),
    pytest.param("b", seen(machine("a")), Writes, id="the first one was replaced later"),
    pytest.param("a", seen(*map(machine, "abc")), Done, id="complete"),
    pytest.param("a", seen(*map(machine, "abcd")), "ScaleDownNotSupported", id="too many"),
]


@pytest.mark.parametrize("etcd, world, expected", TABLE)
def test_the_next_move(etcd: str, world: ObservedTalosControlPlane, expected: Any) -> None:
    owner = control_plane(etcd=etcd)
    move = plan.next_move(owner, world)
    if isinstance(expected, str):
        assert isinstance(move, Wait)
        assert move.reason == expected
    else:
        assert isinstance(move, expected)
    assert plan.describe(owner, world, move).replicas == len(world.machines)


def test_the_machine_is_recorded_before_it_is_asked() -> None:
    move = plan.next_move(control_plane(), seen(NEW))
    assert isinstance(move, Writes)
    (write,) = move.writes
    assert isinstance(write, Merge)
    assert write.change == {"metadata": {"annotations": {ETCD_MACHINE: "a"}}}


def test_a_missing_configuration_is_made_of_that_of_the_control_plane() -> None:
    part = MissingPart(NEW, "a", TalosConfig.resource, control_plane().spec.template_ref, {})
    move = plan.next_move(control_plane(), seen(NEW, missing=(part,)))
    assert isinstance(move, Writes)
    (write,) = move.writes
    assert isinstance(write, Create)
    assert write.obj.spec.generate_type == "controlplane"
    assert [o.name for o in write.obj.metadata.owner_references] == ["a"]


def test_deletion_deletes_machines_first() -> None:
    owner = control_plane(deletionTimestamp="2026-01-01T00:00:00Z")
    assert isinstance(plan.next_move(owner, seen(machine("a"))), Writes)
    assert isinstance(plan.next_move(owner, seen()), Done)


def due(
    found: tuple[dict[str, Any], ...], *endpoints: str, now: datetime = NOW
) -> tuple[dict[str, Any], ...]:
    known = {each["metadata"]["name"]: each for each in found}
    return secrets.due_secrets(control_plane(), cluster(), SECRETS, known, endpoints, now)


def test_the_secrets_are_those_of_cluster_api_and_are_written_once() -> None:
    made = due(())
    assert [s["metadata"]["name"] for s in made] == ["c-ca", "c-kubeconfig", "c-talosconfig"]
    assert due(made) == ()
    assert base64.b64decode(made[0]["data"]["tls.crt"]) == SECRETS.kubernetes.certificate


def test_a_talosconfig_follows_the_addresses_and_its_certificate_is_renewed() -> None:
    made = due(())
    (changed,) = due(made, "192.0.2.11")
    text = base64.b64decode(changed["data"]["talosconfig"])
    assert yaml.safe_load(text)["contexts"]["c"]["endpoints"] == ["192.0.2.11"]
    later = NOW + timedelta(days=360)
    names = {s["metadata"]["name"] for s in due(made, now=later)}
    assert names == {"c-kubeconfig", "c-talosconfig"}
