"""Admission: each mistake and the sentence it earns."""

from typing import Any

import msgspec
import pytest

from moxwell.api.infra.admission import DRY_RUN, validation_errors
from moxwell.api.infra.cluster import ProxmoxCluster, ProxmoxClusterTemplate
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineTemplate
from moxwell.api.kinds import Object

POOL = {"addresses": ["10.0.0.10-10.0.0.20"], "prefix": 24, "gateway": "10.0.0.1"}


def cluster(**spec: Any) -> ProxmoxCluster:
    return msgspec.convert({"metadata": {"name": "c"}, "spec": spec}, ProxmoxCluster)


def machine(**spec: Any) -> ProxmoxMachine:
    return msgspec.convert({"metadata": {"name": "m"}, "spec": spec}, ProxmoxMachine)


def template(annotations: dict[str, str] | None = None, **spec: Any) -> ProxmoxMachineTemplate:
    meta = {"name": "t", "annotations": annotations or {}}
    tree = {"metadata": meta, "spec": {"template": {"spec": spec}}}
    return msgspec.convert(tree, ProxmoxMachineTemplate)


def devices(*each: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"networkDevices": list(each), **more}


GOOD = [
    pytest.param(cluster(), id="an empty cluster"),
    pytest.param(
        cluster(ipv4Config=POOL, controlPlaneEndpoint={"host": "10.0.0.9", "port": 6443}),
        id="an endpoint beside the pool",
    ),
    pytest.param(
        cluster(
            ipv4Config=POOL,
            externalManagedControlPlane=True,
            controlPlaneEndpoint={"host": "10.0.0.10", "port": 6443},
        ),
        id="an endpoint brought by somebody else",
    ),
    pytest.param(machine(), id="an empty machine"),
    pytest.param(machine(templateID=100, full=True, storage="lvm"), id="full clone elsewhere"),
    pytest.param(template(numCores=4), id="a template"),
]


@pytest.mark.parametrize("obj", GOOD)
def test_accepted(obj: Object) -> None:
    assert validation_errors(obj) == ()


@pytest.mark.parametrize(
    "obj, sentence",
    [
        pytest.param(
            cluster(controlPlaneEndpoint={"host": "x"}), "needs a port", id="endpoint without port"
        ),
        pytest.param(
            cluster(controlPlaneEndpoint={"host": "a b", "port": 1}), "neither", id="endpoint host"
        ),
        pytest.param(
            cluster(ipv4Config=POOL, controlPlaneEndpoint={"host": "10.0.0.15", "port": 6443}),
            "a machine will get it one day",
            id="endpoint among the machines' addresses",
        ),
        pytest.param(
            cluster(ipv4Config={**POOL, "addresses": ["10.0.0.9-10.0.0.1"]}),
            "is not a range",
            id="range backwards",
        ),
        pytest.param(
            cluster(ipv4Config={**POOL, "addresses": ["2001:db8::1"]}), "only IPv4", id="family"
        ),
        pytest.param(cluster(ipv4Config={**POOL, "prefix": 64}), "at most 32", id="IPv4 prefix"),
        pytest.param(
            cluster(ipv4Config={**POOL, "gateway": "router"}), "'router' is not", id="gateway"
        ),
        pytest.param(
            cluster(zoneConfig=[{"zone": "a"}, {"zone": "a"}]), "a is there twice", id="zone twice"
        ),
        pytest.param(cluster(server="x", region="y"), "do not give region", id="server and region"),
        pytest.param(
            machine(templateID=100, templateName="x"), "in one way", id="template named twice"
        ),
        pytest.param(machine(full=False, storage="x"), "linked clone", id="linked to storage"),
        pytest.param(machine(full=False, format="raw"), "linked clone", id="linked with format"),
        pytest.param(
            machine(network=devices({"name": "net0"}, {"name": "net0"})), "twice", id="device twice"
        ),
        pytest.param(
            machine(
                network=devices(
                    {"name": "net0", "defaultIPv4": True}, {"name": "net1", "defaultIPv4": True}
                )
            ),
            "only one device can be the default",
            id="two defaults",
        ),
        pytest.param(
            machine(network=devices({"name": "net0", "mtu": 100})), "mtu must be", id="mtu"
        ),
        pytest.param(
            machine(network=devices({"name": "net0", "routes": [{"to": "default"}]})),
            "needs is6",
            id="default route without family",
        ),
        pytest.param(
            machine(network=devices({"name": "net0", "routingPolicy": [{"to": "10.0.0.0/8"}]})),
            "needs the table",
            id="rule without table",
        ),
        pytest.param(
            machine(
                network=devices({"name": "net0", "routingPolicy": [{"table": 5, "priority": 0}]})
            ),
            "belongs to the kernel",
            id="the kernel's priority",
        ),
        pytest.param(
            machine(network=devices(vrfs=[{"name": "vrf", "table": 254}])), "254", id="VRF table"
        ),
        pytest.param(
            machine(network=devices(vrfs=[{"name": "vrf", "table": 5, "interfaces": ["net7"]}])),
            "no device net7",
            id="VRF without its device",
        ),
        pytest.param(
            machine(
                network=devices(vrfs=[{"name": "vrf", "table": 5, "routingPolicy": [{"table": 6}]}])
            ),
            "own table 5",
            id="VRF rule to another table",
        ),
        pytest.param(
            machine(disks={"extra": [{"disk": "ide2", "sizeGb": 1}]}), "bootstrap ISO", id="ide2"
        ),
        pytest.param(
            machine(
                disks={
                    "bootVolume": {"disk": "scsi0", "sizeGb": 9},
                    "extra": [{"disk": "scsi0", "sizeGb": 1}],
                }
            ),
            "boot volume already",
            id="extra disk on the boot slot",
        ),
        pytest.param(machine(target="a", allowedNodes=["b"]), "is not among", id="target"),
        pytest.param(machine(pciDevices=[{}]), "either by mapping", id="PCI device unnamed"),
        pytest.param(
            machine(vmIDRange={"start": 200, "end": 100}), "must not be below", id="VMID range"
        ),
        pytest.param(template(virtualMachineID=100), "one machine", id="VMID in a template"),
        pytest.param(template(providerID="proxmox://x"), "one machine", id="providerID likewise"),
    ],
)
def test_refused_with_a_sentence(obj: Object, sentence: str) -> None:
    assert sentence in " | ".join(validation_errors(obj))


MADE = {"providerID": "proxmox://r/100", "virtualMachineID": 100, "numCores": 2}
CHANGES = {"changes": "InPlace"}
ELSEWHERE = {"disk": "scsi1", "storage": "ceph"}


@pytest.mark.parametrize(
    "old, new, sentence",
    [
        pytest.param(
            {"numCores": 2}, {"numCores": 4, "pool": "x"}, "", id="before it is made: anything"
        ),
        pytest.param(MADE, {**MADE, "whenStopped": "Start"}, "", id="how it lives"),
        pytest.param(MADE, {**MADE, "providerID": "proxmox://r/101"}, "never", id="providerID"),
        pytest.param(MADE, {**MADE, "virtualMachineID": 5}, "set once", id="VMID"),
        pytest.param(MADE, {**MADE, "pool": "x"}, "roll out", id="what cannot change"),
        pytest.param(MADE, {**MADE, "numCores": 4}, "changes: InPlace", id="cores, not allowed"),
        pytest.param(MADE, {**MADE, "numCores": 4, "changes": "InPlace"}, "", id="cores, allowed"),
        pytest.param(
            {**MADE, "disks": {"bootVolume": {"sizeGb": 20}}},
            {**MADE, "changes": "InPlace", "disks": {"bootVolume": {"sizeGb": 10}}},
            "only grow",
            id="a disk shrinks",
        ),
        pytest.param(
            {**MADE, "disks": {"extra": [{"disk": "scsi1", "sizeGb": 20}]}},
            {**MADE, **CHANGES, "disks": {"extra": [{"disk": "scsi1", "sizeGb": 10}]}},
            "scsi1].sizeGb: a disk can only grow",
            id="a further disk shrinks",
        ),
        pytest.param(
            {**MADE, "disks": {"extra": [{"disk": "scsi1", "sizeGb": 20}]}},
            {**MADE, **CHANGES, "disks": {"extra": [{**ELSEWHERE, "sizeGb": 20}]}},
            "take another slot",
            id="a further disk is wanted elsewhere",
        ),
        pytest.param(
            {**MADE, "disks": {"extra": [{"disk": "scsi1", "sizeGb": 20}]}},
            {**MADE, **CHANGES, "disks": {"extra": [], "whenRemoved": "Delete"}},
            "",
            id="a further disk is taken out",
        ),
    ],
)
def test_changes_of_a_machine(old: dict[str, Any], new: dict[str, Any], sentence: str) -> None:
    said = " | ".join(validation_errors(machine(**new), machine(**old)))
    assert sentence in said if sentence else said == ""


def test_templates_do_not_change_but_may_be_asked() -> None:
    old = template(numCores=2)
    assert "does not change" in validation_errors(template(numCores=4), old)[0]
    asked = template({DRY_RUN: ""}, numCores=4)
    assert validation_errors(asked, old, dry_run=True) == ()
    assert validation_errors(asked, old, dry_run=False) != ()
    assert validation_errors(ProxmoxClusterTemplate(), ProxmoxClusterTemplate()) == ()
