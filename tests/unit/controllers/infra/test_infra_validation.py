"""Which infrastructure objects are refused because of names that do not exist."""

from typing import Any

import msgspec
import pytest

from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineTemplate
from moxwell.api.kinds import Object
from moxwell.controllers.infra.validation import MANAGED_BY, infrastructure_errors
from moxwell.scheduling.inventory_model import HostKey, Template
from moxwell.scheduling.known_infrastructure import KnownInfrastructure, KnownRegion

NORTH = KnownRegion(
    name="north",
    hosts=frozenset({"pve1", "pve2"}),
    storages=frozenset({"ceph"}),
    bridges=frozenset({"vmbr0"}),
    pools=frozenset({"prod"}),
    templates=(Template(HostKey("north", "pve1"), 9000, "ubuntu", frozenset({"k8s"})),),
)
KNOWN = KnownInfrastructure({"north": NORTH}, complete=True)


def decoded(kind: Any, spec: dict[str, Any], **meta: Any) -> Any:
    return msgspec.convert({"metadata": {"name": "a", **meta}, "spec": spec}, kind, strict=False)


def machine(**spec: Any) -> Any:
    return decoded(ProxmoxMachine, spec)


def cluster(**spec: Any) -> Any:
    return decoded(ProxmoxCluster, spec)


def zone(**fields: Any) -> Any:
    return cluster(zoneConfig=[{"zone": "z", "region": "north", **fields}])


def device(bridge: str) -> dict[str, Any]:
    return {"networkDevices": [{"name": "net0", "bridge": bridge}]}


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        pytest.param(machine(storage="cehp"), "spec.storage", id="storage"),
        pytest.param(machine(pool="prd"), "spec.pool", id="resource pool"),
        pytest.param(machine(target="pve3"), "spec.target", id="host"),
        pytest.param(machine(allowedNodes=["pve1", "pv2"]), "spec.allowedNodes[1]", id="hosts"),
        pytest.param(
            machine(network=device("vmbr1")), "networkDevices[net0].bridge", id="bridge"
        ),
        pytest.param(machine(templateID=9001), "spec.templateID", id="template"),
        pytest.param(machine(templateName="ubunto"), "spec.templateName", id="template name"),
        pytest.param(
            decoded(ProxmoxMachineTemplate, {"template": {"spec": {"storage": "x"}}}),
            "spec.template.spec.storage", id="in a template",
        ),
        pytest.param(cluster(region="nort"), "spec.region", id="region"),
        pytest.param(cluster(pool="prd"), "spec.pool", id="pool of a cluster"),
        pytest.param(
            cluster(zoneConfig=[{"zone": "z", "region": "x"}]), "zoneConfig[z].region", id="zone"
        ),
        pytest.param(zone(storage="lvm"), "zoneConfig[z].storage", id="storage of a zone"),
        pytest.param(zone(bridge="vmbr9"), "zoneConfig[z].bridge", id="bridge of a zone"),
        pytest.param(zone(nodes=["pve9"]), "zoneConfig[z].nodes[0]", id="host of a zone"),
    ],
)  # fmt: skip
def test_names_that_do_not_exist_are_refused(obj: Object, path: str) -> None:
    (found,) = infrastructure_errors(obj, None, KNOWN)
    assert path in str(found)
    assert infrastructure_errors(obj, obj, KNOWN) == ()  # it was accepted before
    blind = KnownInfrastructure({"north": KnownRegion(name="north")}, complete=True)
    if "region" not in path:
        assert infrastructure_errors(obj, None, blind) == ()


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(machine(storage="ceph", pool="prod", target="pve1"), id="all exist"),
        pytest.param(machine(virtualMachineID=100, storage="gone"), id="placed already"),
        pytest.param(
            cluster(
                regions=[{"name": "own", "credentialsRef": {"name": "s"}}],
                zoneConfig=[{"zone": "z", "region": "own", "storage": "theirs"}],
            ),
            id="a cluster with its own region",
        ),
        pytest.param(cluster(region="new", credentialsRef={"name": "s"}), id="own credentials"),
        pytest.param(
            decoded(ProxmoxMachine, {"storage": "x"}, labels={MANAGED_BY: "moxwell"}),
            id="ours",
        ),
        pytest.param(
            decoded(
                ProxmoxMachine,
                {"storage": "x"},
                ownerReferences=[{"apiVersion": "v1", "kind": "Machine", "name": "m", "uid": "u"}],
            ),
            id="made by Cluster API",
        ),
    ],
)  # fmt: skip
def test_what_may_exist_is_accepted(obj: Object) -> None:
    assert infrastructure_errors(obj, None, KNOWN) == ()
