"""The chart, rendered by genuine Helm: it means what the kind means, and the API takes it."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from moxwell.api.cozystack import Kubernetes
from moxwell.api.kinds import Resource
from moxwell.app.embedded_api import open_store
from moxwell.controllers.tenancy.cluster.defaults import Defaults, RegionDefaults
from moxwell.controllers.tenancy.cluster.desired_objects import expand
from moxwell.kube.client import Kube
from moxwell.testing.loop import LoopClock, run_virtual
from support import example_cluster

pytestmark = pytest.mark.genuine
CHART = Path(__file__).parents[2] / "charts" / "moxwell-cluster"
Json = dict[str, Any]
Objects = dict[tuple[str, str], Json]
Render = Callable[..., Objects]
POOL: Json = {
    "name": "md0",
    "replicas": 2,
    "memoryMiB": 8192,
    "numCores": 2,
    "disks": {"bootVolume": {"sizeGb": 20}},
}
ZONES: list[Json] = [
    {
        "zone": name,
        "region": name,
        "bridge": "vmbr0",
        "ipPoolRef": [
            {
                "apiGroup": "ipam.cluster.x-k8s.io",
                "kind": "GlobalInClusterIPPool",
                "name": f"{name}-nodes",
            }
        ],
    }
    for name in ("north", "south")
]
DEFAULTS = Defaults(
    regions=tuple(RegionDefaults(name=z["zone"], pool=f"{z['zone']}-nodes") for z in ZONES)
)


def values(**pool: Any) -> Json:
    network = {
        "pods": {"cidrBlocks": ["10.244.0.0/16"]},
        "services": {"cidrBlocks": ["10.96.0.0/16"]},
    }
    plane = {
        "labels": {"cni": None},
        "addons": {"konnectivity": None},
        "kubelet": {"cgroupfs": ""},
        "deployment": {"nodeSelector": {"kubernetes.io/os": None}},
    }
    return {
        "cluster": {"zones": ZONES, "clusterNetwork": network, "controlPlane": plane},
        "nodePools": [{**POOL, **pool}],
    }


@pytest.fixture
def render(envtest_program: Callable[[str], Path], tmp_path: Path) -> Render:
    helm = envtest_program("helm")

    def run(tree: Json | Path | None = None, *more: str, fails: str = "") -> Objects:
        file = tmp_path / "values.yaml"
        file.write_text(tree.read_text() if isinstance(tree, Path) else yaml.safe_dump(tree or {}))
        done = subprocess.run(
            [str(helm), "template", "c", str(CHART), "-n", "tenant-a", "-f", str(file), *more],
            capture_output=True,
            text=True,
            check=False,
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
            timeout=60,
        )
        if fails:
            assert done.returncode != 0
            assert fails in done.stderr
            return {}
        assert done.returncode == 0, done.stderr
        rows = [doc for doc in yaml.safe_load_all(done.stdout) if doc]
        return {(o["kind"], o["metadata"]["name"]): o for o in rows}

    return run


@pytest.mark.parametrize(
    ("pool", "group"),
    [
        pytest.param({}, {}, id="plain nodes"),
        pytest.param(
            {"labels": "b=2,a=1", "taints": "x=y:NoSchedule"},
            {"labels": {"a": "1", "b": "2"}, "taints": ["x=y:NoSchedule"]},
            id="labels and taints, in the form of a flag",
        ),
        pytest.param(
            {"templateId": 9000, "storage": "ceph", "network": {"vlan": 40, "bridge": "vmbr1"}},
            {"template": 9000, "storage": "ceph", "vlan": 40, "bridge": "vmbr1"},
            id="a template, a storage, a VLAN",
        ),
        pytest.param(
            {"autoscaling": {"enabled": True, "minSize": "1", "maxSize": 4}, "replicas": 1},
            {"minReplicas": 1, "maxReplicas": 4, "replicas": None},
            id="sized by an autoscaler",
        ),
        pytest.param({"version": "v1.33.0"}, {"version": "v1.33.0"}, id="a version of its own"),
        pytest.param({"zone": "south"}, {"regions": ["south"]}, id="in one region"),
    ],
)
def test_the_chart_means_what_the_kind_means(render: Render, pool: Json, group: Json) -> None:
    found = render(values(**pool))
    written = {"name": "md0", "replicas": 2, "instanceType": "u1.medium", **group}
    spec: Json = {"nodeGroups": [{k: v for k, v in written.items() if v is not None}]}
    spec["regions"] = ["north", "south"]
    tree = {"metadata": {"name": "c", "namespace": "tenant-a", "uid": "u"}, "spec": spec}
    app = msgspec.convert(tree, Kubernetes)
    wanted = {(o["kind"], o["metadata"]["name"]): o for o in expand(app, DEFAULTS)}
    assert found.keys() == wanted.keys()  # names too: the hashes are of the same meaning
    for name, obj in wanted.items():
        spec_of = dict(found[name]["spec"])
        if name[0] == "ProxmoxCluster":  # the kind names only the zones that groups use
            used = [z["zone"] for z in obj["spec"]["zoneConfig"]]
            spec_of["zoneConfig"] = [z for z in spec_of["zoneConfig"] if z["zone"] in used]
        if name[0] == "MachineDeployment" and "replicas" not in obj["spec"]:
            assert spec_of.pop("replicas") == 1  # the least, before anybody scales
            capacity = "capacity.cluster-autoscaler.kubernetes.io/cpu"
            assert found[name]["metadata"]["annotations"][capacity] == "2"
        assert spec_of == obj["spec"], name


def test_layout_and_order_do_not_roll_nodes(render: Render) -> None:
    one = render(values(labels={"a": "1", "b": "2"}, users=[{"name": "u", "shell": "/bin/sh"}]))
    two = render(values(users=[{"shell": "/bin/sh", "name": "u"}], labels="b=2, a=1"))
    assert one.keys() == two.keys()
    other = render(values(labels={"a": "1"}))
    assert one.keys() != other.keys()


def test_no_value_is_dead(render: Render) -> None:
    tree = values()
    tree["cluster"]["clusterNetwork"]["apiServerPort"] = 7443
    tree["cluster"]["credentialsRef"] = {"name": "s", "namespace": "vault"}
    tree["cluster"] |= {"zones": [], "region": "north", "version": "v1.32.2"}
    found = render(tree)
    assert found["Cluster", "c"]["spec"]["clusterNetwork"]["apiServerPort"] == 7443
    ground = found["ProxmoxCluster", "c"]["spec"]
    assert ground["credentialsRef"] == {"name": "s", "namespace": "vault"}
    assert "ipv4Config" not in ground  # one pool, not two that overlap
    assert found["KamajiControlPlane", "c"]["spec"]["version"] == "v1.32.2"
    assert found["MachineDeployment", "c-md0"]["spec"]["template"]["spec"]["version"] == "v1.32.2"
    tree["proxmox"] = {"secret": {"name": "mine"}}
    ground = render(tree)["ProxmoxCluster", "c"]["spec"]
    assert ground["credentialsRef"] == {"name": "mine", "namespace": "tenant-a"}
    tree["ipamProvider"] = {"enabled": False}
    assert render(tree)["ProxmoxCluster", "c"]["spec"]["ipv4Config"]["prefix"] == 24


def test_metrics_read_one_secret_only(render: Render) -> None:
    tree = values()
    tree["cluster"]["metrics"] = {"enabled": True}
    role = render(tree)["Role", "c-metrics"]
    secrets = next(r for r in role["rules"] if "secrets" in r["resources"])
    assert secrets["resourceNames"] == ["c-api-server-kubelet-client-certificate"]
    assert secrets["verbs"] == ["get"]


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        pytest.param({"memoryMiB": 8190}, "memoryMiB", id="memory that is no multiple"),
        pytest.param({"templateID": 9000}, "templateID", id="a misspelt key"),
        pytest.param({"replicas": "many"}, "replicas", id="a count that is none"),
        pytest.param({"name": "Big_Pool"}, "name", id="a name Kubernetes does not take"),
    ],
)
def test_the_schema_refuses(render: Render, pool: Json, said: str) -> None:
    render(values(**pool), fails=said)


def holds(whole: Any, part: Any) -> bool:
    """Nothing that was written is gone; defaults may have come."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(holds(whole.get(k), v) for k, v in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(holds, whole, part))
    return bool(whole == part)


def upstream() -> Json:
    """The values that people have, and a pool that only some pods may use."""
    tree: Json = yaml.safe_load(example_cluster.VALUES)
    node = "node.kubernetes.io/node=labs"
    tree["nodePools"][0] |= {"labels": node, "taints": f"{node}:NoSchedule"}
    return tree


@pytest.mark.parametrize(
    "tree", [{}, upstream(), values()], ids=["defaults", "as people have it", "zones"]
)
def test_the_api_takes_everything_that_is_rendered(render: Render, tree: Json) -> None:
    objects = render(tree)

    async def story() -> None:
        store = await open_store(LoopClock())
        kube = Kube(store)
        spaces = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant-a"}}
        await kube.create(body, spaces)
        served = {(s.resource.api_version, s.resource.kind): s for s in await kube.discover()}
        for obj in objects.values():
            resource = served[obj["apiVersion"], obj["kind"]].resource
            made = await kube.create(obj, resource)
            assert holds(made["spec"], obj["spec"]), obj["kind"]
        await store.stop()

    run_virtual(story())
