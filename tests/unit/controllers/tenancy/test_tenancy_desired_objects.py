"""The objects of a ``Kubernetes``: tables, and that equal content gives equal objects."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.api.cozystack import InvalidNodeGroups, Kubernetes, NodeGroup, NodeGroupResources
from moxwell.controllers.tenancy.cluster.autoscaling import with_initial_replicas
from moxwell.controllers.tenancy.cluster.defaults import (
    Defaults,
    RegionDefaults,
    groups_of,
    version_of,
)
from moxwell.controllers.tenancy.cluster.desired_objects import expand
from moxwell.controllers.tenancy.cluster.instance_types import (
    NodeSize,
    UnknownInstanceType,
    size_of,
)
from moxwell.controllers.tenancy.cluster.naming import seconds, short_hash
from moxwell.controllers.tenancy.cluster.plan import TEMPLATES
from moxwell.errors import Invalid

DEFAULTS = Defaults(
    regions=(
        RegionDefaults(name="north", pool="north-nodes", dns=("10.0.0.1",)),
        RegionDefaults(name="south", pool="south-nodes"),
    )
)


def app(**spec: Any) -> Kubernetes:
    tree = {"metadata": {"name": "c", "namespace": "tenant-a", "uid": "u"}, "spec": spec}
    return msgspec.convert(tree, Kubernetes)


def objects(**spec: Any) -> dict[tuple[str, str], dict[str, Any]]:
    return {(o["kind"], o["metadata"]["name"]): o for o in expand(app(**spec), DEFAULTS)}


def one(kind: str, **spec: Any) -> dict[str, Any]:
    found = [o for (k, _), o in objects(**spec).items() if k == kind]
    assert len(found) == 1
    return found[0]


# Sizes


@pytest.mark.parametrize(
    ("group", "size"),
    [
        pytest.param({}, NodeSize(2, 8192, 20), id="the default is u1.medium"),
        pytest.param(
            {"instance_type": "c1.xlarge"}, NodeSize(8, 8192, 20), id="c1 has 1 GiB a core"
        ),
        pytest.param({"instance_type": "t1.nano"}, NodeSize(1, 512, 20), id="never under 512 MiB"),
        pytest.param({"disk_size": "50Gi"}, NodeSize(2, 8192, 50), id="a disk in GiB"),
        pytest.param({"disk_size": "1500Mi"}, NodeSize(2, 8192, 2), id="a disk is rounded up"),
        pytest.param(
            {"resources": NodeGroupResources(cpu="2500m", memory="3Gi")},
            NodeSize(3, 3072, 20),
            id="resources win, cores rounded up",
        ),
        pytest.param(
            {"resources": NodeGroupResources(cpu=4)}, NodeSize(4, 8192, 20), id="a number"
        ),
        pytest.param(
            {"resources": NodeGroupResources(memory="1001Mi")},
            NodeSize(2, 1008, 20),
            id="memory in whole 8 MiB",
        ),
    ],
)
def test_sizes(group: dict[str, Any], size: NodeSize) -> None:
    assert size_of(NodeGroup(name="g", **group)) == size


@pytest.mark.parametrize("name", ["huge", "u1", "u1.", "u9.large", ".large"])
def test_an_unknown_instance_type_is_refused(name: str) -> None:
    with pytest.raises(UnknownInstanceType, match=r"u1\.medium"):
        size_of(NodeGroup(name="g", instance_type=name))


@pytest.mark.parametrize(
    ("name", "meant"),
    [("u1.meduim", "u1.medium"), ("U1.Large", "u1.large"), ("m1large", "m1.large")],
)
def test_the_nearest_instance_type_is_named(name: str, meant: str) -> None:
    with pytest.raises(UnknownInstanceType, match=f"did you mean {meant}\\?"):
        size_of(NodeGroup(name="g", instance_type=name))


@given(st.sampled_from(["t1", "c1", "s1", "u1", "m1"]), st.sampled_from(["medium", "4xlarge"]))
def test_series_differ_in_memory_only(series: str, size: str) -> None:
    found = size_of(NodeGroup(name="g", instance_type=f"{series}.{size}"))
    other = size_of(NodeGroup(name="g", instance_type=f"u1.{size}"))
    assert found.cores == other.cores


# Groups


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        pytest.param({}, {"md0": None}, id="the default is one autoscaled group"),
        pytest.param({"replicas": 2}, {"md0": 2}, id="a number alone"),
        pytest.param({"nodeGroups": [{"name": "w", "replicas": 3}]}, {"w": 3}, id="the list"),
        pytest.param(
            {"replicas": 3, "nodeGroups": [{"name": "w"}, {"name": "x", "replicas": 1}]},
            {"w": 3, "x": 1},
            id="replicas of the whole count for groups that say nothing",
        ),
        pytest.param(
            {"nodeGroups": {"w": {"minReplicas": 2, "maxReplicas": 5}}},
            {"w": None},
            id="the map with bounds",
        ),
        pytest.param({"nodeGroups": {"w": {"minReplicas": 2}}}, {"w": 2}, id="only a least"),
        pytest.param({"nodeGroups": {"w": None}}, {"w": 1}, id="a bare name is one node"),
    ],
)
def test_groups(spec: dict[str, Any], counts: dict[str, int | None]) -> None:
    assert {g.name: g.replicas for g in groups_of(app(**spec))} == counts


@pytest.mark.parametrize(
    "written",
    [
        pytest.param("three", id="a word"),
        pytest.param([{"replicas": 1}], id="without a name"),
        pytest.param([{"name": "a"}, {"name": "a"}], id="the same name twice"),
        pytest.param([{"name": "a", "replicas": "many"}], id="a count that is none"),
        pytest.param(["a"], id="a list of words"),
    ],
)
def test_groups_that_cannot_be_read(written: Any) -> None:
    with pytest.raises(InvalidNodeGroups, match="nodeGroups"):
        groups_of(app(nodeGroups=written))


# Expansion


def test_one_object_of_each_for_the_cluster_and_four_for_each_group() -> None:
    found = objects(nodeGroups=[{"name": "a", "replicas": 1}, {"name": "b", "replicas": 2}])
    kinds = sorted(kind for kind, _ in found)
    assert kinds == sorted(
        ["Cluster", "KamajiControlPlane", "ProxmoxCluster"]
        + 2
        * [
            "KubeadmConfigTemplate",
            "MachineDeployment",
            "MachineHealthCheck",
            "ProxmoxMachineTemplate",
        ]
    )
    assert all(o["metadata"]["ownerReferences"][0]["uid"] == "u" for o in found.values())
    assert all(o["metadata"]["namespace"] == "tenant-a" for o in found.values())


def test_autoscaled_groups_have_bounds_instead_of_replicas() -> None:
    bounds = {"minReplicas": 2, "maxReplicas": 5, "instanceType": "u1.large"}
    group = one("MachineDeployment", nodeGroups={"w": bounds})
    assert "replicas" not in group["spec"]
    notes = group["metadata"]["annotations"]
    assert notes["cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"] == "2"
    assert notes["cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"] == "5"
    assert notes["capacity.cluster-autoscaler.kubernetes.io/cpu"] == "4"
    assert notes["capacity.cluster-autoscaler.kubernetes.io/memory"] == "16384Mi"
    assert with_initial_replicas(group)["spec"]["replicas"] == 2
    fixed = one("MachineDeployment", replicas=3)
    assert with_initial_replicas(fixed) is fixed


@pytest.mark.parametrize(
    ("group", "path", "value"),
    [
        pytest.param({"template": 9000}, ["templateID"], 9000, id="a template by id"),
        pytest.param({"template": "ubuntu"}, ["templateName"], "ubuntu", id="by name"),
        pytest.param(
            {"templateTags": ["a", "b"]},
            ["templateSelector", "matchTags"],
            ["a", "b"],
            id="by tags",
        ),
        pytest.param({"storage": "ceph"}, ["full"], True, id="another storage is a full clone"),
        pytest.param({"diskSize": "30Gi"}, ["disks", "bootVolume", "sizeGb"], 30, id="disk"),
        pytest.param(
            {"gpus": [{"name": "a100"}]}, ["pciDevices", 0, "mapping"], "a100", id="a device"
        ),
        pytest.param(
            {"vlan": 40}, ["network", "networkDevices", 0, "vlan"], 40, id="a VLAN of its own"
        ),
    ],
)
def test_machine_specs_follow_their_group(
    group: dict[str, Any], path: list[Any], value: Any
) -> None:
    tree: Any = one("ProxmoxMachineTemplate", nodeGroups=[{"name": "w", **group}])
    tree = tree["spec"]["template"]["spec"]
    for step in path:
        tree = tree[step]
    assert tree == value


@pytest.mark.parametrize(
    ("version", "full"),
    [
        pytest.param("", "v1.34.1", id="nothing is ours"),
        pytest.param("v1.34", "v1.34.1", id="a minor we know"),
        pytest.param("v1.33", "v1.33.0", id="a minor we do not"),
        pytest.param("1.33.4", "v1.33.4", id="without the letter"),
    ],
)
def test_versions(version: str, full: str) -> None:
    assert version_of(app(version=version), DEFAULTS) == full
    control_plane = one("KamajiControlPlane", version=version, replicas=1)
    group = one("MachineDeployment", version=version, replicas=1)
    assert control_plane["spec"]["version"] == full
    assert group["spec"]["template"]["spec"]["version"] == full


def test_regions_become_zones_with_their_own_addresses() -> None:
    spec = one("ProxmoxCluster", replicas=1)["spec"]
    assert [z["zone"] for z in spec["zoneConfig"]] == ["north", "south"]
    assert spec["zoneConfig"][0]["ipPoolRef"] == [
        {
            "apiGroup": "ipam.cluster.x-k8s.io",
            "kind": "GlobalInClusterIPPool",
            "name": "north-nodes",
        }
    ]
    alone = one("MachineDeployment", replicas=1, regions=["south"])
    assert alone["spec"]["template"]["spec"]["failureDomain"] == "south"
    with pytest.raises(Invalid, match="known regions: north, south"):
        objects(replicas=1, regions=["west"])


def test_role_labels_are_not_set_by_the_kubelet() -> None:
    group = {"w": {"replicas": 1, "roles": ["ingress-nginx"], "labels": {"a": "b"}}}
    join = one("KubeadmConfigTemplate", nodeGroups=group)["spec"]["template"]["spec"]
    args = {
        a["name"]: a["value"]
        for a in join["joinConfiguration"]["nodeRegistration"]["kubeletExtraArgs"]
    }
    assert "node-role" not in args["node-labels"]
    assert "a=b" in args["node-labels"]
    labels = one("MachineDeployment", nodeGroups=group)["spec"]["template"]["metadata"]["labels"]
    assert labels["node-role.kubernetes.io/ingress-nginx"] == ""


@pytest.mark.parametrize(
    ("text", "meant"), [("20m", 1200), ("90s", 90), ("1h30m", 5400)], ids=["m", "s", "both"]
)
def test_durations(text: str, meant: int) -> None:
    assert seconds(text) == meant


@pytest.mark.parametrize("text", ["20", "m", "1d", "x"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(Invalid, match="duration"):
        seconds(text)


# Hashes

_leaf = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3)
_tree = st.recursive(
    _leaf,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


def _shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shuffled(value[key]) for key in reversed(list(value))}
    return [_shuffled(item) for item in value] if isinstance(value, list) else value


@given(_tree)
def test_a_hash_does_not_depend_on_order_or_layout(value: Any) -> None:
    printed = json.loads(json.dumps(value, indent=4, sort_keys=True))
    assert short_hash(value) == short_hash(_shuffled(value)) == short_hash(printed)


@given(st.dictionaries(st.text("abc", min_size=1), st.integers(), min_size=1))
def test_a_hash_depends_on_content(value: dict[str, int]) -> None:
    key = next(iter(value))
    assert short_hash({**value, "empty": {}, "none": None, "nothing": []}) == short_hash(value)
    assert short_hash({**value, key: value[key] + 1}) != short_hash(value)


_groups = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=4),
    st.fixed_dictionaries(
        {},
        optional={
            "replicas": st.integers(0, 9),
            "minReplicas": st.integers(0, 3),
            "maxReplicas": st.integers(3, 9),
            "instanceType": st.sampled_from(["u1.medium", "c1.large"]),
            "diskSize": st.sampled_from(["20Gi", 30 << 30]),
            "roles": st.just(["ingress-nginx"]),
            "taints": st.just(["a=b:NoSchedule"]),
        },
    ),
    min_size=1,
    max_size=3,
)


@given(_groups)
def test_both_forms_of_node_groups_are_equal(groups: dict[str, Any]) -> None:
    listed = [{"name": name, **group} for name, group in groups.items()]
    assert expand(app(nodeGroups=groups), DEFAULTS) == expand(app(nodeGroups=listed), DEFAULTS)


@given(_groups)
def test_counts_and_order_never_roll_anything(groups: dict[str, Any]) -> None:
    more = {name: {**g, "replicas": 7} for name, g in reversed(list(groups.items()))}
    names = {
        (o["kind"], o["metadata"]["name"])
        for o in expand(app(nodeGroups=groups), DEFAULTS)
        if o["kind"] in TEMPLATES
    }
    assert names == {
        (o["kind"], o["metadata"]["name"])
        for o in expand(app(nodeGroups=more), DEFAULTS)
        if o["kind"] in TEMPLATES
    }
