"""Which tenant clusters and tenants are refused, and what cannot be known now."""

from typing import Any

import msgspec
import pytest

from moxwell.api.conditions import Condition
from moxwell.api.cozystack import Kubernetes, KubernetesStatus, Tenant
from moxwell.controllers.tenancy.cluster.defaults import Defaults, RegionDefaults
from moxwell.controllers.tenancy.cluster.validation import cluster_errors
from moxwell.controllers.tenancy.tenant.validation import tenant_errors
from moxwell.scheduling.inventory_model import HostKey, Template
from moxwell.scheduling.known_infrastructure import KnownInfrastructure, KnownRegion

DEFAULTS = Defaults(regions=(RegionDefaults(name="north"), RegionDefaults(name="south")))


def template(region: str, vmid: int, version: str) -> Template:
    return Template(HostKey(region, "pve1"), vmid, f"ubuntu-kube-{version}")


def region(name: str, **known: Any) -> KnownRegion:
    facts: dict[str, Any] = {
        "zones": frozenset({"rack-a"}),
        "hosts": frozenset({"pve1", "pve2"}),
        "storages": frozenset({"local-lvm", "ceph-vm"}),
        "bridges": frozenset({"vmbr0", "tenant1"}),
        "pools": frozenset({"prod"}),
        "templates": (template(name, 9000, "v1.34.1"), template(name, 9001, "v1.35.0")),
    }
    return KnownRegion(name=name, **(facts | known))


KNOWN = KnownInfrastructure({"north": region("north"), "south": region("south")}, complete=True)
BLIND = KnownInfrastructure(
    {"north": KnownRegion(name="north"), "south": KnownRegion(name="south")}, complete=True
)


def app(name: str = "c1", status: Any = None, generation: int = 1, **spec: Any) -> Kubernetes:
    meta = {"name": name, "namespace": "tenant-red", "generation": generation}
    tree = {"metadata": meta, "spec": spec}
    found: Kubernetes = msgspec.convert(tree, Kubernetes, strict=False)
    return msgspec.structs.replace(found, status=status) if status else found


def group(**fields: Any) -> dict[str, Any]:
    return {"nodeGroups": [{"name": "md0", "replicas": 1, **fields}]}


def errors(new: Kubernetes, old: Kubernetes | None = None, known: Any = KNOWN) -> list[str]:
    return [str(e) for e in cluster_errors(new, old, DEFAULTS, known)]


REFUSED = [
    pytest.param(
        {"regions": ["nort"]}, "spec.regions[0]", "did you mean north?", id="region"
    ),
    pytest.param(
        group(regions=["soth"]), "spec.nodeGroups[md0].regions[0]", "mean south?", id="group region"
    ),
    pytest.param(
        group(zones=["rack-b"]), "spec.nodeGroups[md0].zones[0]", "mean rack-a?", id="zone"
    ),
    pytest.param(
        group(instanceType="u1.lage"), "instanceType", "did you mean u1.large?", id="size"
    ),
    pytest.param(
        group(storage="local-lmv"), "md0].storage", "did you mean local-lvm?", id="storage"
    ),
    pytest.param(group(bridge="vmbr1"), "md0].bridge", "did you mean vmbr0?", id="bridge"),
    pytest.param(
        {"version": "v1.36.0"}, "spec.version", "templates exist for v1.34.1, v1.35.0",
        id="version without a template",
    ),
    pytest.param(
        {"version": "1.34.x"}, "spec.version", "not a Kubernetes version", id="no version"
    ),
    pytest.param(group(template=9002), "md0].template", "VMID 9002", id="template by VMID"),
    pytest.param(
        group(template="ubuntu-kube-v1.34"), "md0].template", "did you mean ubuntu-kube-v1.34.1?",
        id="template by name",
    ),
    pytest.param(group(templateTags=["gpu"]), "templateTags", "tags gpu", id="template by tag"),
    pytest.param(group(diskSize="twenty"), "diskSize", "not a quantity", id="disk"),
    pytest.param(group(resources={"cpu": 0}), "resources.cpu", "more than 0", id="no CPU"),
    pytest.param(group(nodeStartupTimeout="20"), "nodeStartupTimeout", "duration", id="duration"),
    pytest.param(group(replicas=-1), "md0].replicas", "negative", id="negative"),
    pytest.param(group(replicas=5001), "md0].replicas", "more than 5000", id="too many nodes"),
    pytest.param(group(replicas="two"), "md0].replicas", "got `str`", id="no number"),
    pytest.param(
        {"nodeGroups": {"a": {"minReplicas": 3, "maxReplicas": 2}}}, "minReplicas", "maxReplicas",
        id="bounds",
    ),
    pytest.param({"nodeGroups": [{"name": "MD_0"}]}, "name", "lower-case", id="group name"),
    pytest.param({"nodeGroups": [{"replicas": 1}]}, "", "[0].name is missing", id="no name"),
    pytest.param(
        {"network": {"addresses": ["10.0.0.300"], "gateway": "10.0.0.1"}}, "", "10.0.0.300",
        id="what the ProxmoxCluster would refuse later",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "path", "said"), REFUSED)
def test_a_cluster_that_cannot_work_is_refused(spec: dict[str, Any], path: str, said: str) -> None:
    found = errors(app(**spec))
    assert len(found) == 1, found
    assert path in found[0]
    assert said in found[0]


@pytest.mark.parametrize(("spec", "path", "said"), REFUSED)
def test_what_was_accepted_once_does_not_prevent_other_changes(
    spec: dict[str, Any], path: str, said: str
) -> None:
    old = app(**spec)
    assert errors(app(**{**spec, "host": "k.example.org"}), old) == []


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(group(storage="new-storage"), id="storage"),
        pytest.param(group(bridge="vmbr9"), id="bridge"),
        pytest.param({"version": "v1.36.0"}, id="version"),
        pytest.param(group(zones=["pve9"]), id="host"),
        pytest.param(group(template=9002), id="template"),
    ],
)
def test_what_cannot_be_known_now_is_not_refused(spec: dict[str, Any]) -> None:
    assert errors(app(**spec), known=BLIND) == []
    half = KnownInfrastructure({**KNOWN.regions, "south": KnownRegion(name="south")}, complete=True)
    assert errors(app(**spec), known=half) == []
    assert errors(app(**{**spec, "regions": ["north"]}), known=half) != []


def test_a_region_that_does_not_answer_still_exists() -> None:
    assert errors(app(regions=["north"]), known=BLIND) == []
    assert "does not exist" in errors(app(regions=["east"]), known=BLIND)[0]
    later = KnownInfrastructure(dict(KNOWN.regions), complete=False)
    assert "does not exist" not in "".join(errors(app(regions=["east"]), known=later))


def test_the_longest_name_that_fits() -> None:
    assert errors(app("a" * 42, **group())) == []
    (found,) = errors(app("a" * 43, **group()))
    assert "too long by 1 characters" in found
    assert "may have 45 together" in found


RUNNING = KubernetesStatus(
    version="v1.34.1",
    observed_generation=1,
    conditions=(Condition(type="UpToDate", status="True"),),
)
ROLLING = msgspec.structs.replace(RUNNING, version="v1.35.0", node_versions=("v1.34.1", "v1.35.0"))


@pytest.mark.parametrize(
    ("old", "wanted", "said"),
    [
        pytest.param(app(version="v1.34.1", status=RUNNING), "v1.35.0", "", id="next"),
        pytest.param(app(version="v1.34.1", status=RUNNING), "v1.33.0", "downgrade", id="lower"),
        pytest.param(app(version="v1.34.1", status=RUNNING), "v1.36.0", "skips", id="skipped"),
        pytest.param(app(version="v1.35.0", status=ROLLING), "v1.34.1", "", id="taken back"),
        pytest.param(
            app(version="v1.35.0", status=ROLLING), "v1.33.4", "downgrade", id="not what it was"
        ),
        pytest.param(
            app(version="v1.35.0", status=RUNNING, generation=2), "v1.34.1", "",
            id="taken back at once",
        ),
    ],
)  # fmt: skip
def test_changes_of_the_version(old: Kubernetes, wanted: str, said: str) -> None:
    found = errors(app(version=wanted), old)
    assert bool(said) == bool(found), found
    assert said in "".join(found)


def tenant(name: str = "red", **spec: Any) -> Tenant:
    tree = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    found: Tenant = msgspec.convert(tree, Tenant, strict=False)
    return found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param(tenant("Red"), "lower-case", id="name"),
        pytest.param(tenant("a" * 60), "67 characters", id="name too long"),
        pytest.param(tenant(network={"allowFrom": ["10.0.0.0/99"]}), "not a network", id="network"),
        pytest.param(
            tenant(network={"rules": [{"ports": "80-90"}]}), "such as 30000:32767", id="ports"
        ),
        pytest.param(tenant(network={"rules": [{"protocol": "all"}]}), "one of tcp", id="protocol"),
        pytest.param(
            tenant(network={"ranges": ["10.0.0.9-10.0.0.1"]}), "spec.network.ranges", id="range"
        ),
        pytest.param(
            tenant(network={"vnet": {"zone": "z", "subnet": "10.0.0.0/24", "gateway": "10.1.0.1"}}),
            "spec.network.vnet.gateway", id="gateway of a VNet",
        ),
        pytest.param(
            tenant(network={"bridge": "vmbr0", "vnet": {"zone": "z"}}), "not both", id="networks"
        ),
        pytest.param(tenant(network={"bridge": "vmbr1"}), "did you mean vmbr0?", id="bridge"),
        pytest.param(tenant(resourceQuotas={"cpus": 4}), "did you mean cpu?", id="quota name"),
        pytest.param(tenant(resourceQuotas={"cpu": "four"}), "not a quantity", id="quota value"),
        pytest.param(tenant(resourceQuotas={"cpu": -1}), "negative", id="negative quota"),
    ],
)  # fmt: skip
def test_a_tenant_that_cannot_work_is_refused(given: Tenant, said: str) -> None:
    (found,) = tenant_errors(given, None, KNOWN)
    assert said in str(found)


def test_quota_names_of_kubernetes_are_accepted() -> None:
    names = {"cpu": 4, "nodes": 3, "services.loadbalancers": 1, "count/deployments.apps": 5}
    gold = {"gold.storageclass.storage.k8s.io/requests.storage": "10Gi"}
    assert tenant_errors(tenant(resourceQuotas=names | gold), None, KNOWN) == ()
