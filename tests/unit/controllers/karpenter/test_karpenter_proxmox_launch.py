"""Which offering a node claim gets, and which objects are made for it."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from moxwell.api.capi.core import Machine
from moxwell.api.conditions import Condition
from moxwell.api.core.resources import Secret
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineSpec, ProxmoxMachineStatus
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.proxmox import NodeKubeletConfiguration, ProxmoxNodeClass
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.karpenter.names import PLANNED_HOST
from moxwell.controllers.karpenter.provider import InstanceState, LaunchFailure
from moxwell.controllers.karpenter.proxmox import machine_objects
from moxwell.controllers.karpenter.proxmox.catalogue import (
    Candidate,
    CatalogueSettings,
    catalogue,
    sizes_of,
)
from moxwell.controllers.karpenter.proxmox.host_states import HostState
from moxwell.controllers.karpenter.proxmox.instance_record import (
    InstanceRecord,
    InvalidClaimUid,
    machine_name,
    record_of,
)
from moxwell.controllers.karpenter.proxmox.instance_state import instance_of
from moxwell.controllers.karpenter.proxmox.kubelet_settings import kubelet_patch
from moxwell.controllers.karpenter.proxmox.launch_choice import LaunchChoice, NoOffering, choose
from moxwell.controllers.karpenter.proxmox.launches import (
    FailedLaunch,
    FailedLaunches,
    LaunchedCapacity,
    UnavailableOfferings,
)
from moxwell.controllers.karpenter.proxmox.node_class_check import SelectedZone
from moxwell.controllers.karpenter.proxmox.scope import MachineDefaults
from moxwell.controllers.karpenter.proxmox.token_collector import obsolete
from moxwell.runtime.key import Key
from moxwell.scheduling.guest_sizes import GuestOverhead, GuestSize, make_size
from moxwell.scheduling.host_room import HostRoom
from moxwell.scheduling.inventory_model import GIB, HostKey, PendingGuest, Template
from moxwell.scheduling.well_known_labels import INSTANCE_TYPE, ZONE
from moxwell.testing.karpenter_environment import node_claim
from moxwell.testing.loop import LoopClock, run_virtual


def host(name: str, cpus: int = 32, load: float = 0.0, region: str = "north") -> Candidate:
    key = HostKey(region, name)
    room = HostRoom(key, cpus, 64 * GIB, 500 * GIB)
    return Candidate(SelectedZone(key, Template(key, 9000)), HostState(room, load))


def claim(uid: str = "u-1", **more: Any) -> NodeClaim:
    requests = more.pop("requests", {"cpu": "1"})
    tree = node_claim("a", requests, **more)
    tree["metadata"] |= {"uid": uid}
    return msgspec.convert(tree, NodeClaim)


def node_class(**spec: Any) -> ProxmoxNodeClass:
    ref = {"kind": "ProxmoxUnmanagedTemplate", "name": "ubuntu"}
    tree = {"metadata": {"name": "default"}, "spec": {"instanceTemplateRef": ref} | spec}
    return msgspec.convert(tree, ProxmoxNodeClass)


SETTINGS = CatalogueSettings()
SIZES = (make_size(4, 8 * GIB, "c1"), make_size(2, 4 * GIB, "c1"), make_size(2, 8 * GIB, "s1"))


def select(
    given: NodeClaim, sizes: tuple[GuestSize, ...], hosts: tuple[Candidate, ...], **options: Any
) -> LaunchChoice | NoOffering:
    return choose(given, sizes, hosts, settings=SETTINGS, **options)


def chosen(found: LaunchChoice | NoOffering) -> tuple[str, str]:
    assert isinstance(found, LaunchChoice), found
    return found.size.name, found.candidate.room.key.name


def test_the_cheapest_size_on_the_least_loaded_host() -> None:
    hosts = (host("pve1", load=0.5), host("pve2", load=0.2), host("pve3", cpus=1))
    assert chosen(select(claim(), SIZES, hosts)) == ("c1.2VCPU-4GB", "pve2")


@pytest.mark.parametrize(
    ("planned", "expected"),
    [
        ("north/pve1", ("c1.2VCPU-4GB", "pve1")),
        ("north/pve3", ("c1.2VCPU-4GB", "pve2")),  # no room: the launch decides
        ("north/other", ("c1.2VCPU-4GB", "pve2")),
        ("", ("c1.2VCPU-4GB", "pve2")),
    ],
)
@pytest.mark.parametrize("at_random", [False, True])
def test_the_host_that_packing_chose_comes_first(
    planned: str, expected: tuple[str, str], at_random: bool
) -> None:
    hosts = (host("pve1", load=0.5), host("pve2", load=0.2), host("pve3", cpus=1))
    plain = claim()
    meta = msgspec.structs.replace(plain.metadata, annotations={PLANNED_HOST: planned})
    given = msgspec.structs.replace(plain, metadata=meta)
    found = chosen(select(given, SIZES, hosts, at_random=at_random))
    assert found == expected or (at_random and expected[1] == "pve2" and found[1] != "pve3")


def test_requirements_and_requests_restrict_the_choice() -> None:
    hosts = (host("pve1"), host("pve2"))
    requirements = [
        {"key": ZONE, "operator": "In", "values": ["pve2"]},
        {"key": INSTANCE_TYPE, "operator": "NotIn", "values": ["c1.2VCPU-4GB"]},
        {"key": "karpenter.sh/nodepool", "operator": "In", "values": ["default"]},
        {"key": "team", "operator": "In", "values": ["a"]},
    ]
    assert chosen(select(claim(requirements=requirements), SIZES, hosts)) == (
        "s1.2VCPU-8GB",
        "pve2",
    )
    large = claim(requests={"cpu": "3"})
    assert chosen(select(large, SIZES, hosts))[0] == "c1.4VCPU-8GB"


def test_a_blocked_offering_is_passed_over() -> None:
    hosts = (host("pve1"), host("pve2", load=0.9))
    blocked = {("c1.2VCPU-4GB", HostKey("north", "pve1"))}
    assert chosen(select(claim(), SIZES, hosts, blocked=blocked)) == ("c1.2VCPU-4GB", "pve2")


def test_at_random_depends_on_the_claim_alone() -> None:
    hosts = tuple(host(f"pve{n}") for n in range(8))
    first = [chosen(select(claim(f"u-{n}"), SIZES, hosts, at_random=True))[1] for n in range(40)]
    again = [chosen(select(claim(f"u-{n}"), SIZES, hosts, at_random=True))[1] for n in range(40)]
    assert first == again
    assert len(set(first)) > 4


@pytest.mark.parametrize(
    ("given", "hosts", "message"),
    [
        (claim(), (), "selects no host"),
        (claim(requests={"cpu": "99"}), (host("pve1"),), "large enough"),
        (claim(), (host("pve1", cpus=1),), "no host has room"),
        (
            claim(requirements=[{"key": ZONE, "operator": "In", "values": ["x"]}]),
            (host("pve1"),),
            "requirements",
        ),
        (
            claim(
                requirements=[
                    {
                        "key": "karpenter.proxmox.sinextra.dev/instance-cpu-type",
                        "operator": "In",
                        "values": ["host"],
                    }
                ]
            ),
            (host("pve1"),),
            "requirements",
        ),
    ],
)
def test_why_there_is_no_offering(
    given: NodeClaim, hosts: tuple[Candidate, ...], message: str
) -> None:
    found = select(given, SIZES, hosts)
    assert isinstance(found, NoOffering)
    assert message in found.message


def test_the_node_class_decides_disk_and_pods() -> None:
    spec = node_class(bootDevice={"size": "50Gi"}, kubeletConfiguration={"maxPods": 42}).spec
    (first, *_) = sizes_of(spec, CatalogueSettings(SIZES), ())
    assert first.capacity["ephemeral-storage"] == 50 * GIB * 1000
    assert first.capacity["pods"] == 42_000
    fitted = sizes_of(spec, CatalogueSettings(SIZES, fitted=True), (host("pve1", cpus=7),))
    assert "f1.7VCPU-64GB" in {size.name for size in fitted}


def test_the_catalogue_has_an_offering_for_each_host() -> None:
    hosts = (host("pve1"), host("pve2", cpus=1))
    types = catalogue(SIZES, hosts, SETTINGS, {("c1.4VCPU-8GB", HostKey("north", "pve1"))})
    shown = {t.name: [(o.zone, o.available) for o in t.offerings] for t in types}
    assert shown["c1.2VCPU-4GB"] == [("pve1", True), ("pve2", False)]
    assert shown["c1.4VCPU-8GB"] == [("pve1", False), ("pve2", False)]


def test_a_node_reports_less_memory_than_its_guest_has() -> None:
    (first, *_) = catalogue(SIZES, (host("pve1"),), SETTINGS)
    assert first.capacity["memory"] == int(8192 * 0.925) * 1024 * 1024 * 1000
    assert SIZES[0].memory_bytes == 8 * GIB
    nearly = select(claim(requests={"cpu": "1", "memory": "7600Mi"}), SIZES, (host("pve1"),))
    assert isinstance(nearly, NoOffering)


RECORD = InstanceRecord(
    instance_type="c1.2VCPU-4GB",
    node_class="default",
    class_hash="1",
    region="north",
    host="pve1",
    template=9000,
    template_host="pve1",
    failure_domain="a",
    cpus=2,
    memory_mib=4096,
    disk_gib=30,
)


def machine(**status: Any) -> Machine:
    body = machine_objects.machine(
        Key("default", "c"), "c-a-1", claim(), RECORD, {"dataSecretName": "c-a-1"}, "v1.34.1"
    )
    body["metadata"] |= {"uid": "m-1"} | status
    return msgspec.convert(body, Machine)


def test_names_depend_on_cluster_and_uid_and_are_host_names() -> None:
    names = {machine_name(c, "claim", u) for c in ("a", "b") for u in ("1", "2")}
    assert len(names) == 4
    long = machine_name("x" * 80, "Y.z" * 90, "1")
    assert len(long) <= 63
    assert long == long.lower().strip("-")
    assert "." not in long


def test_a_uid_that_is_no_label_value_is_refused() -> None:
    with pytest.raises(InvalidClaimUid):
        machine_objects.machine(Key("n", "c"), "x", claim(uid="a,b=c"), RECORD, {}, "")


def test_the_record_survives_and_a_damaged_one_is_no_instance() -> None:
    made = machine()
    assert record_of(made) == RECORD
    damaged = msgspec.structs.replace(
        made,
        metadata=msgspec.structs.replace(made.metadata, annotations={"moxwell.dev/instance": "{"}),
    )
    assert record_of(damaged) is None
    assert instance_of(damaged, None) is None


def test_the_proxmox_machine_has_the_size_the_host_and_the_operators_network() -> None:
    network = {"networkDevices": [{"name": "net0", "bridge": "tenant", "firewall": True}]}
    defaults = MachineDefaults({"network": network, "firewallGroups": ["tenant"]})
    chosen_class = node_class(
        tags=["blue"],
        securityGroups=[{"name": "web"}],
        bootDevice={"storage": "ceph"},
        resourcePool="kube",
    )
    spec = machine_objects.proxmox_machine(machine(), RECORD, chosen_class, defaults)["spec"]
    assert spec["network"] == network
    assert spec["firewallGroups"] == ["tenant", "web@net0"]
    parsed = msgspec.convert(spec, ProxmoxMachineSpec)
    assert (parsed.num_cores, parsed.memory_mib, parsed.target) == (2, 4096, "pve1")
    assert (parsed.region, parsed.template_id, parsed.storage) == ("north", 9000, "ceph")
    assert (parsed.full, parsed.pool, parsed.tags) == (True, "kube", ("blue",))


def test_the_kubelet_is_configured_by_a_patch_of_kubeadm() -> None:
    spec = node_class(
        kubeletConfiguration={
            "maxPods": 42,
            "shutdownGracePeriod": "30s",
            "clusterDNS": ["10.0.0.1"],
        }
    ).spec
    size = make_size(2, 4 * GIB, "c1")
    patch = kubelet_patch(spec.kubelet_configuration, size.overhead)
    assert patch["kubeReserved"] == {"cpu": "50m", "memory": "256Mi"}
    assert patch["evictionHard"]["memory.available"] == "100Mi"
    given = claim(
        taints=[{"key": "gpu", "effect": "NoSchedule", "value": "yes"}],
        startupTaints=[
            {"key": "cilium", "effect": "NoExecute"},
            {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
        ],
    )
    config = machine_objects.kubeadm_config(machine(), given, patch)["spec"]
    registration = config["joinConfiguration"]["nodeRegistration"]
    assert [t["key"] for t in registration["taints"]] == [
        "gpu",
        "cilium",
        "karpenter.sh/unregistered",
    ]
    labels = {a["name"]: a["value"] for a in registration["kubeletExtraArgs"]}["node-labels"]
    assert labels == "karpenter.sh/nodepool=default,team=a"
    (file,) = config["files"]
    assert json.loads(file["content"])["maxPods"] == 42
    assert config["joinConfiguration"]["patches"] == {"directory": "/etc/kubernetes/patches"}


KUBELET = {
    "cpuManagerPolicy": "static",
    "cpuCFSQuota": False,
    "cpuCFSQuotaPeriod": "50ms",
    "topologyManagerPolicy": "single-numa-node",
    "topologyManagerScope": "pod",
    "imageGCHighThresholdPercent": 80,
    "imageGCLowThresholdPercent": 70,
    "shutdownGracePeriod": "30s",
    "allowedUnsafeSysctls": ["net.core.somaxconn"],
    "clusterDNS": ["10.96.0.10", "fd00::a"],
    "maxPods": 42,
    "failSwapOn": False,
}


def test_every_field_of_the_kubelet_reaches_kubeadm() -> None:
    assert set(KUBELET) == set(NodeKubeletConfiguration.__struct_encode_fields__)
    given = node_class(kubeletConfiguration=KUBELET).spec.kubelet_configuration
    patch = kubelet_patch(given, make_size(2, 4 * GIB, "c1").overhead)
    written = json.loads(json.dumps(patch))
    assert {name: written[name] for name in KUBELET} == KUBELET


def test_thresholds_of_one_size_do_not_change_those_of_another() -> None:
    spec = node_class().spec.kubelet_configuration
    size = make_size(2, 4 * GIB, "c1")
    before = kubelet_patch(spec, size.overhead)
    large = GuestOverhead(eviction={"memory": 500 * 1024 * 1024 * 1000})
    changed = kubelet_patch(spec, large)
    changed["evictionHard"]["nodefs.available"] = "50%"
    assert kubelet_patch(spec, size.overhead) == before
    assert before["evictionHard"]["nodefs.available"] == "10%"


def test_labels_that_a_kubelet_may_not_set_are_left_to_the_autoscaler() -> None:
    tree = node_claim("a", {})
    tree["metadata"]["labels"] = {
        "node-role.kubernetes.io/worker": "",
        "node.kubernetes.io/instance-type": "c1",
        "example.com/a": "b",
        "topology.k8s.io/x": "y",
    }
    found = machine_objects.settable_labels(msgspec.convert(tree, NodeClaim))
    assert set(found) == {"node.kubernetes.io/instance-type", "example.com/a"}


def proxmox(reason: str = "", provider_id: str = "") -> ProxmoxMachine:
    ready = Condition(type="Ready", status="False", reason=reason, message="why")
    return ProxmoxMachine(
        metadata=ObjectMeta(name="c-a-1"),
        spec=ProxmoxMachineSpec(provider_id=provider_id),
        status=ProxmoxMachineStatus(conditions=(ready,) if reason else ()),
    )


@pytest.mark.parametrize(
    ("found", "state", "failure"),
    [
        (None, InstanceState.PENDING, None),
        (proxmox(), InstanceState.PENDING, None),
        (proxmox("Cloning"), InstanceState.PENDING, None),
        (proxmox("RegionUnreachable"), InstanceState.PENDING, None),
        (proxmox("InsufficientResources"), InstanceState.FAILED, "InsufficientCapacity"),
        (proxmox("QuotaExceeded"), InstanceState.FAILED, "InsufficientCapacity"),
        (proxmox("StorageFull"), InstanceState.FAILED, "InsufficientCapacity"),
        (proxmox("NoQuorum"), InstanceState.FAILED, "InsufficientCapacity"),
        (proxmox("TemplateNotFound"), InstanceState.FAILED, "LaunchFailed"),
        (proxmox("WaitingForNode", "proxmox://north/100"), InstanceState.LAUNCHED, None),
        (proxmox("HostDown", "proxmox://north/100"), InstanceState.LAUNCHED, None),
        (proxmox("Vanished", "proxmox://north/100"), InstanceState.LOST, None),
    ],
)
def test_the_state_of_an_instance(
    found: ProxmoxMachine | None, state: InstanceState, failure: str | None
) -> None:
    instance = instance_of(machine(), found)
    assert instance is not None
    assert (instance.state, instance.failure) == (state, failure)
    assert (instance.claim, instance.uid) == ("a", "u-1")
    assert instance.image_id == "north/pve1/9000"


def test_a_deleted_machine_terminates_and_is_gone_with_its_guest() -> None:
    deleting = machine(deletionTimestamp="2026-01-01T00:00:00Z")
    instance = instance_of(deleting, proxmox("Deleting", "proxmox://north/100"))
    assert instance is not None
    assert instance.state is InstanceState.TERMINATING
    assert instance_of(deleting, None) is None


async def remember_and_forget() -> None:
    clock = LoopClock()
    offerings, failed, capacity = (
        UnavailableOfferings(clock),
        FailedLaunches(clock),
        LaunchedCapacity(clock),
    )
    key = HostKey("north", "pve1")
    guest = PendingGuest(key, 2, GIB)
    offerings.block("c1", key, "u-1")
    failed.add("u-1", FailedLaunch(LaunchFailure.LAUNCH_FAILED, "why"))
    capacity.add("n/a", guest)
    capacity.add("n/b", replace(guest, cpus=4))
    assert offerings.current() == {("c1", key)}
    assert failed.find("u-1") is not None
    assert capacity.unseen({"n/a"}) == (replace(guest, cpus=4),)
    await asyncio.sleep(179)
    offerings.block("c1", key, "u-1")  # the same failure again
    await asyncio.sleep(2)
    assert offerings.current() == frozenset()
    assert failed.find("u-1") is None
    assert capacity.unseen(set()) == ()


def test_what_is_remembered_is_forgotten_in_time() -> None:
    run_virtual(remember_and_forget())


def test_tokens_of_registered_and_missing_claims_are_obsolete() -> None:
    label = "karpenter.proxmox.sinextra.dev/bootstrap-token"
    tokens = [
        Secret(metadata=ObjectMeta(name=uid, labels={label: uid})) for uid in ("u-1", "u-2", "u-3")
    ]
    tree = node_claim("b", {})
    tree["metadata"]["uid"] = "u-2"
    tree["status"] = {"conditions": [{"type": "Registered", "status": "True"}]}
    registered = msgspec.convert(tree, NodeClaim)
    assert [t.name for t in obsolete(tokens, (claim(), registered))] == ["u-2", "u-3"]
