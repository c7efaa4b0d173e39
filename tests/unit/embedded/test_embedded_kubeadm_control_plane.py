"""KubeadmControlPlanes: certificates, Machines one after the other, bootstrap data."""

import base64
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import yaml

from moxwell.api.capi.bootstrap import KubeadmConfig
from moxwell.api.capi.controlplane import KubeadmControlPlane
from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.shared import ContractRef
from moxwell.embedded.clusterapi.control_plane_machines import has_node
from moxwell.embedded.clusterapi.kubeadm import certificates, cloud_config
from moxwell.embedded.clusterapi.kubeadm.plan import (
    CreateBootstrapData,
    CreateInitData,
    KubeadmRole,
    ObservedKubeadmConfig,
    role_of,
)
from moxwell.embedded.clusterapi.kubeadm.plan import next_move as next_config_move
from moxwell.embedded.clusterapi.kubeadmcontrolplane import plan
from moxwell.embedded.clusterapi.kubeadmcontrolplane.plan import ObservedKubeadmControlPlane
from moxwell.embedded.clusterapi.machine.plan import NODE_NAME
from moxwell.embedded.clusterapi.machineset.plan import MissingPart
from moxwell.lab.guests.control_plane import find_init
from moxwell.lab.guests.userdata import ParsedUserData
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.writes import Create, Writes

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRETS: dict[str, Any] = {
    purpose: certificates.certificate_secret(
        "c", "d", purpose, certificates.new_pair(purpose, NOW), {}
    )
    for purpose in certificates.FILES
}
REF = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "ProxmoxMachineTemplate", "name": "t"}


def control_plane(replicas: int = 3, **meta: Any) -> KubeadmControlPlane:
    tree = {
        "metadata": {"name": "cp", "namespace": "d", "uid": "u", **meta},
        "spec": {
            "replicas": replicas,
            "version": "v1.34.1",
            "machineTemplate": {"spec": {"infrastructureRef": REF}},
            "kubeadmConfigSpec": {"joinConfiguration": {}, "preKubeadmCommands": ["first"]},
        },
    }
    return msgspec.convert(tree, KubeadmControlPlane)


def cluster(domains: tuple[str, ...] = (), *, provisioned: bool = True) -> Cluster:
    tree = {
        "metadata": {"name": "c", "namespace": "d"},
        "spec": {
            "controlPlaneEndpoint": {"host": "127.1.1.1", "port": 6443},
            "clusterNetwork": {"pods": {"cidrBlocks": ["10.244.0.0/16"]}},
        },
        "status": {
            "initialization": {"infrastructureProvisioned": provisioned},
            "failureDomains": [{"name": name, "controlPlane": True} for name in domains],
        },
    }
    return msgspec.convert(tree, Cluster)


def machine(name: str, domain: str = "", *, joined: bool = True, deleting: bool = False) -> Machine:
    meta: dict[str, Any] = {"name": name, "namespace": "d", "uid": name}
    if joined:
        meta["annotations"] = {NODE_NAME: name}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ready = [{"type": "InfrastructureReady", "status": "True", "reason": "Ready"}]
    tree = {
        "metadata": meta,
        "spec": {"clusterName": "c", "failureDomain": domain, "version": "v1.34.1"},
        "status": {"conditions": ready if joined else []},
    }
    return msgspec.convert(tree, Machine)


def seen(*machines: Machine, **rest: Any) -> ObservedKubeadmControlPlane:
    given: dict[str, Any] = {"cluster": cluster(), "secrets": SECRETS} | rest
    return ObservedKubeadmControlPlane(now=NOW, machines=machines, **given)


TABLE = [
    pytest.param(seen(cluster=None), "WaitingForCluster", id="no cluster"),
    pytest.param(seen(secrets={}), plan.CreateCertificates, id="no certificates"),
    pytest.param(
        seen(cluster=cluster(provisioned=False)), "WaitingForInfrastructure", id="no infrastructure"
    ),
    pytest.param(seen(kubeconfig_due=True), plan.WriteKubeconfig, id="no kubeconfig"),
    pytest.param(seen(), Writes, id="the first machine"),
    pytest.param(seen(machine("a", joined=False)), "WaitingForMachine", id="one after the other"),
    pytest.param(seen(machine("a")), Writes, id="the second machine"),
    pytest.param(
        seen(machine("a"), machine("b", deleting=True)), "WaitingForMachine", id="one is deleted"
    ),
    pytest.param(seen(machine("a"), machine("b"), machine("c")), Done, id="complete"),
    pytest.param(
        seen(*map(machine, "abcd")), "ScaleDownNotSupported", id="members of etcd are not removed"
    ),
]


@pytest.mark.parametrize("world, expected", TABLE)
def test_the_next_move(world: ObservedKubeadmControlPlane, expected: Any) -> None:
    move = plan.next_move(control_plane(), world)
    if isinstance(expected, str):
        assert isinstance(move, Wait)
        assert move.reason == expected
    else:
        assert isinstance(move, expected)
    status = plan.describe(control_plane(), world, move)
    initialized = any(map(has_node, world.machines))
    assert status.initialization.control_plane_initialized is initialized


def test_deletion_deletes_the_machines_and_waits() -> None:
    owner = control_plane(deletionTimestamp="2026-01-01T00:00:00Z")
    assert isinstance(plan.next_move(owner, seen(machine("a"))), Writes)
    assert isinstance(plan.next_move(owner, seen(machine("a", deleting=True))), Wait)
    assert isinstance(plan.next_move(owner, seen()), Done)


def test_machines_are_spread_over_failure_domains() -> None:
    domains = cluster(("a", "b", "c"))
    machines: list[Machine] = []
    for _ in range(5):
        made = plan.new_machine(control_plane(), domains, machines)
        assert made.name not in {m.name for m in machines}
        machines.append(made)
    assert [m.spec.failure_domain for m in machines] == ["a", "b", "c", "a", "b"]


def config(*, first: bool) -> KubeadmConfig:
    spec = plan.config_spec(control_plane(), first=first)
    meta = {"metadata": {"name": "m", "namespace": "d"}}
    return msgspec.structs.replace(msgspec.convert(meta, KubeadmConfig), spec=spec)


def test_the_first_machine_initializes_and_the_others_join() -> None:
    assert role_of(config(first=True)) is KubeadmRole.INIT
    assert role_of(config(first=False)) is KubeadmRole.CONTROL_PLANE
    (write,) = plan.next_move(control_plane(), seen()).writes  # type: ignore[union-attr]
    assert isinstance(write, Create)


def test_bootstrap_data_waits_for_certificates_but_init_needs_no_control_plane() -> None:
    base: dict[str, Any] = {"now": NOW, "machine": machine("m", joined=False), "cluster": cluster()}
    pki = certificates.pki_files(SECRETS)
    for first in (True, False):
        move = next_config_move(config(first=first), ObservedKubeadmConfig(**base))
        assert isinstance(move, Wait)
    ready = ObservedKubeadmConfig(**base, pki=pki)
    assert isinstance(next_config_move(config(first=True), ready), CreateInitData)
    assert isinstance(next_config_move(config(first=False), ready), Wait)
    up = msgspec.convert(
        {
            "metadata": {"name": "c"},
            "status": {
                "initialization": {
                    "infrastructureProvisioned": True,
                    "controlPlaneInitialized": True,
                }
            },
        },
        Cluster,
    )
    joining = ObservedKubeadmConfig(
        **(base | {"cluster": up}), pki=pki, ca_secret=SECRETS["ca"], has_kubeconfig=True
    )
    move = next_config_move(config(first=False), joining)
    assert isinstance(move, CreateBootstrapData)
    assert move.pki == pki


def test_the_init_data_is_what_kubeadm_reads() -> None:
    made = config(first=True)
    pki = certificates.pki_files(SECRETS)
    documents = cloud_config.init_configuration(made, cluster(), "v1.34.1")
    text = cloud_config.init_data(made.spec, documents, {}, pki)
    body = yaml.safe_load(text)
    files = {f["path"]: f for f in body["write_files"]}
    assert files["/etc/kubernetes/pki/ca.key"]["permissions"] == "0600"
    assert files["/etc/kubernetes/pki/etcd/ca.crt"]["content"].startswith("-----BEGIN CERT")
    assert body["runcmd"][0] == "first"
    assert body["runcmd"][1].startswith("kubeadm init --config /run/kubeadm/kubeadm.yaml")
    contents = {path: f["content"] for path, f in files.items()}
    init = find_init(ParsedUserData(contents, tuple(body["runcmd"]), "m"))
    assert init is not None
    assert init.control_plane.url == "https://127.1.1.1:6443"
    assert yaml.safe_load(init.cluster)["networking"] == {"podSubnet": "10.244.0.0/16"}
    assert init.control_plane.ca == base64.b64decode(SECRETS["ca"]["data"]["tls.crt"]).decode()


def test_objects_have_no_empty_parts_that_upstream_refuses() -> None:
    made = machine("b", joined=False)
    source = msgspec.convert(REF, ContractRef)
    part = MissingPart(made, "b", KubeadmConfig.resource, source, {})
    for machines in ((machine("a"), made), (made,)):
        move = plan.next_move(control_plane(), seen(*machines, missing=(part,)))
        assert isinstance(move, Writes)
        (write,) = move.writes
        assert isinstance(write, Create)
        spec = write.obj["spec"]
        join = spec.get("joinConfiguration", {"controlPlane": {}})
        assert join == {"controlPlane": {}}
        assert spec.get("clusterConfiguration") != {}
        assert spec.get("initConfiguration") != {}
