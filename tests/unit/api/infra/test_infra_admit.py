"""Validation of the infrastructure kinds: invalid objects and the error messages."""

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
    "obj, message",
    [
        pytest.param(
            cluster(controlPlaneEndpoint={"host": "x"}), "needs a port", id="endpoint without port"
        ),
        pytest.param(
            cluster(controlPlaneEndpoint={"host": "a b", "port": 1}), "neither", id="endpoint host"
        ),
        pytest.param(
            cluster(ipv4Config=POOL, controlPlaneEndpoint={"host": "10.0.0.15", "port": 6443}),
            "a machine can get it",
            id="endpoint among the machines' addresses",
        ),
        pytest.param(
            cluster(dnsServers=["10.0.0.2", "eight"]), "'eight' is not an IP", id="DNS server"
        ),
        pytest.param(machine(virtualMachineID=50), "50 is not from 100", id="VMID of Proxmox"),
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
            cluster(zoneConfig=[{"zone": "a"}, {"zone": "a"}]), "duplicate a", id="zone twice"
        ),
        pytest.param(cluster(server="x", region="y"), "omit region", id="server and region"),
        pytest.param(
            machine(templateID=100, templateName="x"), "set only one of", id="template named twice"
        ),
        pytest.param(machine(full=False, storage="x"), "linked clone", id="linked to storage"),
        pytest.param(machine(full=False, format="raw"), "linked clone", id="linked with format"),
        pytest.param(
            machine(network=devices({"name": "net0"}, {"name": "net0"})),
            "duplicate net0",
            id="device twice",
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
            "table: is required",
            id="rule without table",
        ),
        pytest.param(
            machine(
                network=devices({"name": "net0", "routingPolicy": [{"table": 5, "priority": 0}]})
            ),
            "reserved for the kernel",
            id="the kernel's priority",
        ),
        pytest.param(
            machine(network=devices(vrfs=[{"name": "vrf", "table": 254}])), "254", id="VRF table"
        ),
        pytest.param(
            machine(network=devices(vrfs=[{"name": "vrf", "table": 5, "interfaces": ["net7"]}])),
            "device net7 does not exist",
            id="VRF without its device",
        ),
        pytest.param(
            machine(
                network=devices(vrfs=[{"name": "vrf", "table": 5, "routingPolicy": [{"table": 6}]}])
            ),
            "table 5",
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
            "already the boot volume",
            id="extra disk on the boot slot",
        ),
        pytest.param(
            machine(target="a", allowedNodes=["b"]), "is not in spec.allowedNodes", id="target"
        ),
        pytest.param(machine(pciDevices=[{}]), "either mapping or host", id="PCI device unnamed"),
        pytest.param(
            machine(vmIDRange={"start": 200, "end": 100}), "must not be less", id="VMID range"
        ),
        pytest.param(
            template(virtualMachineID=100), "cannot be set in a template", id="VMID in a template"
        ),
        pytest.param(
            template(providerID="proxmox://x"),
            "cannot be set in a template",
            id="providerID likewise",
        ),
    ],
)
def test_rejected_with_a_message(obj: Object, message: str) -> None:
    assert message in " | ".join(validation_errors(obj))


CREATED = {"providerID": "proxmox://r/100", "virtualMachineID": 100, "numCores": 2}
CHANGES = {"changes": "InPlace"}
CLAIM = {"host": "a", "uuid": "11111111-2222-4333-8444-555555555555"}
OTHER_STORAGE = {"disk": "scsi1", "storage": "ceph"}


@pytest.mark.parametrize(
    "old, new, message",
    [
        pytest.param(
            {"numCores": 2},
            {"numCores": 4, "pool": "x"},
            "",
            id="any field before the guest exists",
        ),
        pytest.param(CREATED, {**CREATED, "whenStopped": "Start"}, "", id="lifecycle policy"),
        pytest.param(
            CREATED, {**CREATED, "providerID": "proxmox://r/101"}, "immutable", id="providerID"
        ),
        pytest.param(CREATED, {**CREATED, "virtualMachineID": 500}, "immutable once", id="VMID"),
        pytest.param(CREATED, {**CREATED, "storage": "x"}, "roll out", id="immutable field"),
        pytest.param(CREATED, {**CREATED, "pool": "x"}, "changes: InPlace", id="a pool"),
        pytest.param(CREATED, {**CREATED, **CHANGES, "pool": "x"}, "", id="a pool, allowed"),
        pytest.param(
            {**CREATED, "claim": CLAIM},
            {**CREATED, "claim": {**CLAIM, "applied": {"tags": ["a"]}}},
            "",
            id="what was applied is recorded",
        ),
        pytest.param(
            {**CREATED, "claim": {**CLAIM, "staleClones": ["r/101"]}},
            {**CREATED, "claim": CLAIM},
            "",
            id="a stale clone is gone",
        ),
        pytest.param(
            {**CREATED, "claim": CLAIM},
            {**CREATED, "claim": {**CLAIM, "host": "b"}},
            "spec.claim: is immutable once set",
            id="another host in the claim",
        ),
        pytest.param(
            CREATED, {**CREATED, "numCores": 4}, "changes: InPlace", id="cores, not allowed"
        ),
        pytest.param(
            CREATED, {**CREATED, "numCores": 4, "changes": "InPlace"}, "", id="cores, allowed"
        ),
        pytest.param(
            {**CREATED, "disks": {"bootVolume": {"sizeGb": 20}}},
            {**CREATED, "changes": "InPlace", "disks": {"bootVolume": {"sizeGb": 10}}},
            "cannot shrink",
            id="a disk shrinks",
        ),
        pytest.param(
            {**CREATED, "disks": {"extra": [{"disk": "scsi1", "sizeGb": 20}]}},
            {**CREATED, **CHANGES, "disks": {"extra": [{"disk": "scsi1", "sizeGb": 10}]}},
            "scsi1].sizeGb: a disk cannot shrink",
            id="an extra disk shrinks",
        ),
        pytest.param(
            {**CREATED, "disks": {"extra": [{"disk": "scsi1", "sizeGb": 20}]}},
            {**CREATED, **CHANGES, "disks": {"extra": [{**OTHER_STORAGE, "sizeGb": 20}]}},
            "use another slot",
            id="an extra disk moves to another storage",
        ),
        pytest.param(
            {**CREATED, "disks": {"extra": [{"disk": "scsi1", "sizeGb": 20}]}},
            {**CREATED, **CHANGES, "disks": {"extra": [], "whenRemoved": "Delete"}},
            "",
            id="an extra disk is removed",
        ),
    ],
)
def test_changes_of_a_machine(old: dict[str, Any], new: dict[str, Any], message: str) -> None:
    said = " | ".join(validation_errors(machine(**new), machine(**old)))
    assert message in said if message else said == ""


def test_templates_are_immutable_except_in_a_dry_run() -> None:
    old = template(numCores=2)
    assert "is immutable" in validation_errors(template(numCores=4), old)[0]
    asked = template({DRY_RUN: ""}, numCores=4)
    assert validation_errors(asked, old, dry_run=True) == ()
    assert validation_errors(asked, old, dry_run=False) != ()
    assert validation_errors(ProxmoxClusterTemplate(), ProxmoxClusterTemplate()) == ()
