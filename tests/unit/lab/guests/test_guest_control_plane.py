"""What ``kubeadm init`` in user data asks of the lab, and what is refused with which words."""

from typing import Any

import pytest
import yaml

from moxwell.errors import Invalid
from moxwell.lab.guests.control_plane import Init, Plane, find_init, joined_plane
from moxwell.lab.guests.kubeadm import token_secret
from moxwell.lab.guests.kubeadm_addons import addons
from moxwell.lab.guests.static_pods import mirror, static_pods
from moxwell.lab.guests.userdata import TAINTS, Instructions, find_join

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


def told(
    cluster: dict[str, Any] | None = None, node: dict[str, Any] | None = None, **init: Any
) -> Instructions:
    own = {"kind": "InitConfiguration", "nodeRegistration": node or {}, **init}
    text = yaml.safe_dump_all([CLUSTER | (cluster or {}), own])
    return Instructions({**KEYS, "/run/kubeadm/kubeadm.yaml": text}, (COMMAND,), "cp-1")


def read(instructions: Instructions) -> Init:
    found = find_init(instructions)
    assert found is not None
    return found


def test_an_init_is_read_whole() -> None:
    args = [{"name": "provider-id", "value": "proxmox://x"}]
    found = read(told(node={"kubeletExtraArgs": args}, skipPhases=["addon/kube-proxy"]))
    assert (found.plane.host, found.plane.port) == ("127.5.0.1", 6443)
    assert found.plane.ca == "text of ca.crt"
    assert found.plane.service_key == "text of sa.key"
    assert found.node_name == "cp-1"
    assert found.kubelet_args == {"provider-id": "proxmox://x"}
    assert found.taints == TAINTS
    assert found.sentinel
    assert yaml.safe_load(found.cluster)["kubernetesVersion"] == "v1.34.1"


@pytest.mark.parametrize(
    "taints, expected",
    [
        pytest.param(None, TAINTS, id="nothing said: kubeadm taints"),
        pytest.param([], (), id="an empty list: no taint"),
        pytest.param([{"key": "a", "effect": "b"}], ({"key": "a", "effect": "b"},), id="own ones"),
    ],
)
def test_taints_of_a_control_plane(taints: Any, expected: Any) -> None:
    node = {} if taints is None else {"taints": taints}
    assert read(told(node=node)).taints == expected


@pytest.mark.parametrize(
    "endpoint, words",
    [
        pytest.param("10.0.0.4:6443", "127.1.2.3", id="an address that is not here"),
        pytest.param("api.example.com:6443", "127.1.2.3", id="a name"),
        pytest.param("", "no address", id="no endpoint"),
    ],
)
def test_endpoints_that_the_lab_cannot_serve(endpoint: str, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        find_init(told({"controlPlaneEndpoint": endpoint}))


@pytest.mark.parametrize(
    "endpoint, expected",
    [
        pytest.param("127.9.9.9", ("127.9.9.9", 6443), id="the usual port"),
        pytest.param("localhost:7443", ("127.0.0.1", 7443), id="localhost"),
        pytest.param("[::1]:6443", ("::1", 6443), id="loopback of version six"),
    ],
)
def test_endpoints_that_it_can(endpoint: str, expected: tuple[str, int]) -> None:
    plane = read(told({"controlPlaneEndpoint": endpoint})).plane
    assert (plane.host, plane.port) == expected


def test_keys_that_the_user_data_does_not_bring_are_named() -> None:
    given = told()
    files = {k: v for k, v in given.files.items() if not k.endswith("ca.key")}
    with pytest.raises(Invalid, match=r"does not bring /etc/kubernetes/pki/ca\.key"):
        find_init(Instructions(files, given.commands, "cp-1"))


def test_a_configuration_nobody_wrote() -> None:
    with pytest.raises(Invalid, match="which nobody wrote"):
        find_init(Instructions(KEYS, (COMMAND,), "cp-1"))


def test_a_script_that_only_speaks_of_init_is_none() -> None:
    script = 'grep -q -e "kubeadm init" /etc/kubeadm.sh'
    assert find_init(Instructions({"/etc/x.sh": script}, ("/etc/x.sh",), "w")) is None


@pytest.mark.parametrize(
    "files, stacked",
    [
        pytest.param({}, True, id="etcd on the machines"),
        pytest.param({"/etc/kubernetes/pki/apiserver-etcd-client.crt": "x"}, False, id="external"),
    ],
)
def test_a_join_of_another_control_plane(files: dict[str, str], stacked: bool) -> None:
    path = "/run/kubeadm/kubeadm-join-config.yaml"
    written = {**KEYS, **files, path: yaml.safe_dump(JOIN)}
    join = find_join(Instructions(written, (f"kubeadm join --config {path}",), "cp-2"))
    assert join is not None
    assert join.taints == TAINTS
    plane = joined_plane(join, written, "v1.34.1")
    assert plane is not None
    assert plane.id == read(told()).plane.id
    assert plane.stacked is stacked


def test_static_pods_are_kubeadms_and_those_that_were_written() -> None:
    vip = {"kind": "Pod", "metadata": {"name": "kube-vip", "namespace": "kube-system"}, "spec": {}}
    files = {
        "/etc/kubernetes/manifests/kube-vip.yaml": yaml.safe_dump(vip),
        "/etc/kubernetes/manifests/broken.yaml": "{",
        "/etc/other.yaml": yaml.safe_dump(vip),
    }
    plane = read(told()).plane
    names = [p["metadata"]["name"] for p in static_pods(plane, files)]
    assert names == [
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "etcd",
        "kube-vip",
    ]
    external = read(told({"etcd": {"external": {"endpoints": ["https://e"]}}})).plane
    assert "etcd" not in [p["metadata"]["name"] for p in static_pods(external, {})]


def test_a_mirror_says_that_it_is_one() -> None:
    (pod, *_) = static_pods(read(told()).plane, {})
    made = mirror(pod, "cp-1", "u1")
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
def test_addons_unless_their_phase_is_skipped(skipped: list[str], kinds: set[str]) -> None:
    assert {a["kind"] for a in addons(read(told(skipPhases=skipped)))} == kinds


def test_tokens_of_an_init_are_kept_as_kubeadm_keeps_them() -> None:
    made = token_secret({"token": "abcdef.0123456789abcdef", "expires": "2030-01-01T00:00:00Z"})
    assert made["metadata"]["name"] == "bootstrap-token-abcdef"
    assert made["stringData"]["token-secret"] == "0123456789abcdef"
    assert made["stringData"]["expiration"] == "2030-01-01T00:00:00Z"


def test_a_plane_shows_no_key() -> None:
    plane = read(told()).plane
    assert isinstance(plane, Plane)
    assert "key" not in repr(plane)
