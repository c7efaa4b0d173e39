"""Parsing of kubeadm init in user-data, static pods and addons."""

from typing import Any

import pytest
import yaml

from moxwell.bootstrap.kubeadm import token_secret
from moxwell.errors import Invalid
from moxwell.lab.guests.control_plane import (
    GuestControlPlane,
    KubeadmInit,
    find_init,
    joined_control_plane,
)
from moxwell.lab.guests.kubeadm_addons import addons
from moxwell.lab.guests.static_pods import mirror_pod, static_pods
from moxwell.lab.guests.userdata import TAINTS, ParsedUserData, find_join

KEYS = {f"/etc/kubernetes/pki/{n}": f"text of {n}" for n in ("ca.crt", "ca.key", "sa.key")}
COMMAND = (
    "kubeadm init --config /run/kubeadm/kubeadm.yaml  "
    "&& echo success > /run/cluster-api/bootstrap-success.complete"
)
CLUSTER = {
    "apiVersion": "kubeadm.k8s.io/v1beta4",
    "kind": "ClusterConfiguration",
    "controlPlaneEndpoint": "127.5.0.1:6443",
    "kubernetesVersion": "v1.34.1",
}
JOIN = {
    "kind": "JoinConfiguration",
    "controlPlane": {},
    "discovery": {"bootstrapToken": {"apiServerEndpoint": "127.5.0.1:6443", "token": "a.b"}},
}


def user_data_with(
    cluster: dict[str, Any] | None = None, node: dict[str, Any] | None = None, **init: Any
) -> ParsedUserData:
    own = {"kind": "InitConfiguration", "nodeRegistration": node or {}, **init}
    text = yaml.safe_dump_all([CLUSTER | (cluster or {}), own])
    return ParsedUserData({**KEYS, "/run/kubeadm/kubeadm.yaml": text}, (COMMAND,), "cp-1")


def read(user_data: ParsedUserData) -> KubeadmInit:
    found = find_init(user_data)
    assert found is not None
    return found


def test_init_configuration_is_parsed() -> None:
    args = [{"name": "provider-id", "value": "proxmox://x"}]
    found = read(user_data_with(node={"kubeletExtraArgs": args}, skipPhases=["addon/kube-proxy"]))
    assert (found.control_plane.host, found.control_plane.port) == ("127.5.0.1", 6443)
    assert found.control_plane.ca == "text of ca.crt"
    assert found.control_plane.service_key == "text of sa.key"
    assert found.node_name == "cp-1"
    assert found.kubelet_args == {"provider-id": "proxmox://x"}
    assert found.taints == TAINTS
    assert found.sentinel
    assert yaml.safe_load(found.cluster)["kubernetesVersion"] == "v1.34.1"


@pytest.mark.parametrize(
    "taints, expected",
    [
        pytest.param(None, TAINTS, id="default: kubeadm taints"),
        pytest.param([], (), id="an empty list: no taint"),
        pytest.param([{"key": "a", "effect": "b"}], ({"key": "a", "effect": "b"},), id="own ones"),
    ],
)
def test_control_plane_taints(taints: Any, expected: Any) -> None:
    node = {} if taints is None else {"taints": taints}
    assert read(user_data_with(node=node)).taints == expected


@pytest.mark.parametrize(
    "endpoint, words",
    [
        pytest.param("10.0.0.4:6443", "127.1.2.3", id="an address that is not here"),
        pytest.param("api.example.com:6443", "127.1.2.3", id="a name"),
        pytest.param("", "no address", id="no endpoint"),
    ],
)
def test_endpoints_that_are_rejected(endpoint: str, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        find_init(user_data_with({"controlPlaneEndpoint": endpoint}))


@pytest.mark.parametrize(
    "endpoint, expected",
    [
        pytest.param("127.9.9.9", ("127.9.9.9", 6443), id="the usual port"),
        pytest.param("localhost:7443", ("127.0.0.1", 7443), id="localhost"),
        pytest.param("[::1]:6443", ("::1", 6443), id="loopback of version six"),
    ],
)
def test_loopback_endpoints(endpoint: str, expected: tuple[str, int]) -> None:
    control_plane = read(user_data_with({"controlPlaneEndpoint": endpoint})).control_plane
    assert (control_plane.host, control_plane.port) == expected


def test_missing_keys_are_named() -> None:
    given = user_data_with()
    files = {k: v for k, v in given.files.items() if not k.endswith("ca.key")}
    with pytest.raises(Invalid, match=r"does not contain /etc/kubernetes/pki/ca\.key"):
        find_init(ParsedUserData(files, given.commands, "cp-1"))


def test_missing_configuration_file() -> None:
    with pytest.raises(Invalid, match="which the user-data does not write"):
        find_init(ParsedUserData(KEYS, (COMMAND,), "cp-1"))


def test_a_script_that_mentions_init_is_ignored() -> None:
    script = 'grep -q -e "kubeadm init" /etc/kubeadm.sh'
    assert find_init(ParsedUserData({"/etc/x.sh": script}, ("/etc/x.sh",), "w")) is None


@pytest.mark.parametrize(
    "files, stacked",
    [
        pytest.param({}, True, id="etcd on the machines"),
        pytest.param({"/etc/kubernetes/pki/apiserver-etcd-client.crt": "x"}, False, id="external"),
    ],
)
def test_join_of_a_second_control_plane_node(files: dict[str, str], stacked: bool) -> None:
    path = "/run/kubeadm/kubeadm-join-config.yaml"
    files_written = {**KEYS, **files, path: yaml.safe_dump(JOIN)}
    join = find_join(ParsedUserData(files_written, (f"kubeadm join --config {path}",), "cp-2"))
    assert join is not None
    assert join.taints == TAINTS
    control_plane = joined_control_plane(join, files_written, "v1.34.1")
    assert control_plane is not None
    assert control_plane.id == read(user_data_with()).control_plane.id
    assert control_plane.stacked is stacked


def test_static_pods_of_kubeadm_and_of_the_user_data() -> None:
    vip = {"kind": "Pod", "metadata": {"name": "kube-vip", "namespace": "kube-system"}, "spec": {}}
    files = {
        "/etc/kubernetes/manifests/kube-vip.yaml": yaml.safe_dump(vip),
        "/etc/kubernetes/manifests/broken.yaml": "{",
        "/etc/other.yaml": yaml.safe_dump(vip),
    }
    control_plane = read(user_data_with()).control_plane
    names = [p["metadata"]["name"] for p in static_pods(control_plane, files)]
    assert names == [
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "etcd",
        "kube-vip",
    ]
    external = read(
        user_data_with({"etcd": {"external": {"endpoints": ["https://e"]}}})
    ).control_plane
    assert "etcd" not in [p["metadata"]["name"] for p in static_pods(external, {})]


def test_mirror_pod() -> None:
    (pod, *_) = static_pods(read(user_data_with()).control_plane, {})
    made = mirror_pod(pod, "cp-1", "u1")
    assert made["metadata"]["name"] == "kube-apiserver-cp-1"
    assert "kubernetes.io/config.mirror" in made["metadata"]["annotations"]
    assert made["metadata"]["ownerReferences"][0]["kind"] == "Node"
    assert made["spec"]["nodeName"] == "cp-1"


@pytest.mark.parametrize(
    "skipped, kinds",
    [
        pytest.param([], {"ConfigMap", "DaemonSet", "Deployment"}, id="both"),
        pytest.param(["addon/kube-proxy"], {"ConfigMap", "Deployment"}, id="another's proxy"),
        pytest.param(["addon"], set(), id="neither"),
    ],
)
def test_skipped_addons(skipped: list[str], kinds: set[str]) -> None:
    assert {a["kind"] for a in addons(read(user_data_with(skipPhases=skipped)))} == kinds


def test_bootstrap_token_secret() -> None:
    made = token_secret({"token": "abcdef.0123456789abcdef", "expires": "2030-01-01T00:00:00Z"})
    assert made["metadata"]["name"] == "bootstrap-token-abcdef"
    assert made["stringData"]["token-secret"] == "0123456789abcdef"
    assert made["stringData"]["expiration"] == "2030-01-01T00:00:00Z"


def test_repr_contains_no_key() -> None:
    control_plane = read(user_data_with()).control_plane
    assert isinstance(control_plane, GuestControlPlane)
    assert "key" not in repr(control_plane)
