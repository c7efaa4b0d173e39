"""The section management_cluster: what is read, what is refused, and the objects made of it."""

from typing import Any

import msgspec
import pytest
import yaml

from moxwell.api import registry
from moxwell.config_file import InvalidConfig
from moxwell.errors import Invalid
from moxwell.management import operator_components, operator_config, progress, spec
from moxwell.management.manifests import ManifestStage, check_kinds
from moxwell.management.objects import cluster_objects, needed_kinds
from moxwell.pve import config
from moxwell.pve.config import PasswordAuth, RegionConfig, TokenAuth
from moxwell.pve.values import SecretValue

ZONE = {"region": "north", "addresses": ["10.0.0.10-10.0.0.19"], "gateway": "10.0.0.1"}
SECTION: dict[str, Any] = {"kubernetes": "v1.34.1", "endpoint": "10.0.0.5", "zones": [ZONE]}


def parsed(**changes: Any) -> spec.ManagementSpec:
    return spec.parse(yaml.safe_dump({"management_cluster": SECTION | changes}))


def test_defaults_make_three_machines_with_a_virtual_ip() -> None:
    made = parsed()
    assert (made.replicas, made.name, made.port) == (3, "management", 6443)
    assert made.virtual_ip == spec.KUBE_VIP_IMAGE


WRONG = [
    pytest.param({"replicas": 2}, "1, 3 or 5", id="no majority"),
    pytest.param({"kubernetes": "1.34"}, "v1.34.1", id="version"),
    pytest.param({"name": "Big"}, "lower-case", id="name"),
    pytest.param({"zones": []}, "at least one", id="no zone"),
    pytest.param({"zones": [ZONE, ZONE]}, "different names", id="zones with one name"),
    pytest.param({"zones": [ZONE | {"gateway": ""}]}, "gateway", id="no gateway"),
    pytest.param({"zones": [ZONE | {"addresses": ["10.0.1.1"]}]}, "10.0.0.0/24", id="outside"),
    pytest.param({"zones": [ZONE | {"addresses": ["x"]}]}, "ranges a-b", id="no address"),
    pytest.param({"endpoint": "10.0.0.12"}, "the endpoint; exclude it", id="endpoint in range"),
    pytest.param({"endpoint": "api.example"}, "virtual_ip to none", id="a name needs a balancer"),
    pytest.param({"pods": "10.96.0.0/16"}, "overlap", id="overlap"),
    pytest.param({"talos": {"template": "t"}}, "set bootstrap", id="Talos without asking for it"),
    pytest.param({"pods": "all"}, "networks", id="no network"),
    pytest.param({"colour": "red"}, "unknown field", id="unknown key"),
    pytest.param({"cores": "many"}, "Expected `int`", id="type"),
]


@pytest.mark.parametrize("changes, message", WRONG)
def test_what_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        parsed(**changes)


def test_a_configuration_without_the_section_names_the_page() -> None:
    with pytest.raises(InvalidConfig, match="howto-bootstrap"):
        spec.parse("clusters: []")


def objects(made: spec.ManagementSpec) -> dict[str, Any]:
    return {resource.kind: obj for resource, obj in cluster_objects(made)}


def test_every_object_is_valid_for_its_kind_and_the_cluster_is_last() -> None:
    made = cluster_objects(parsed(pool="kube", dns=["10.0.0.2"], ssh_keys=["ssh-ed25519 x"]))
    kinds = {(k.resource.api_version, k.resource.kind): k for k in registry.KINDS}
    for resource, obj in made:
        msgspec.convert(obj, kinds[resource.api_version, resource.kind])
    assert made[-1][0].kind == "Cluster"


def test_the_virtual_ip_is_a_static_pod_with_the_chosen_image() -> None:
    config_spec = objects(parsed(virtual_ip="mirror/kube-vip:v1"))["KubeadmControlPlane"]["spec"]
    (file,) = config_spec["kubeadmConfigSpec"]["files"]
    pod = yaml.safe_load(file["content"])
    (container,) = pod["spec"]["containers"]
    assert container["image"] == "mirror/kube-vip:v1"
    assert {"name": "address", "value": "10.0.0.5"} in container["env"]
    (command,) = config_spec["kubeadmConfigSpec"]["preKubeadmCommands"]
    assert "super-admin.conf" in command


def test_the_api_servers_listen_on_the_port_of_the_endpoint() -> None:
    made = objects(parsed(port=7443))
    assert made["ProxmoxCluster"]["spec"]["controlPlaneEndpoint"]["port"] == 7443
    config = made["KubeadmControlPlane"]["spec"]["kubeadmConfigSpec"]
    local = {"localAPIEndpoint": {"bindPort": 7443}}
    assert config["initConfiguration"]["localAPIEndpoint"] == local["localAPIEndpoint"]
    assert config["joinConfiguration"]["controlPlane"] == local
    pod = yaml.safe_load(config["files"][0]["content"])
    assert {"name": "port", "value": "7443"} in pod["spec"]["containers"][0]["env"]


def test_without_virtual_ip_nothing_of_it_is_written() -> None:
    made = objects(parsed(virtual_ip="none", endpoint="api.example"))["KubeadmControlPlane"]["spec"]
    assert not {"files", "preKubeadmCommands"} & set(made["kubeadmConfigSpec"])


def test_the_preview_names_machines_objects_and_manifests() -> None:
    south = ZONE | {"region": "south", "hosts": ["pve7"]}
    made = parsed(zones=[ZONE, south], template={"image": "ubuntu-24.04"})
    stage = ManifestStage("cni.yaml", ({"apiVersion": "v1", "kind": "DaemonSet", "metadata": {}},))
    lines = list(progress.preview(made, (stage,)))
    assert sum(line.startswith("VM ") for line in lines) == 3
    assert any("south on pve7" in line for line in lines)
    assert "template management-node from ubuntu-24.04 in north, south" in lines
    assert "install cni.yaml: 1 DaemonSet" in lines


def test_manifests_without_cluster_api_are_refused() -> None:
    every = ManifestStage("all", registry.make_crds(upstream=True))
    without = ManifestStage("moxwell", tuple(operator_components.components()))
    for made, control_plane in ((parsed(), "KubeadmControlPlane"), (TALOS, "TalosControlPlane")):
        with pytest.raises(Invalid, match=control_plane):
            check_kinds([without], needed_kinds(made))
        check_kinds([every], needed_kinds(made))
    assert "TalosConfig" not in {kind.kind for kind in needed_kinds(parsed())}


TALOS = parsed(bootstrap="talos", talos={"template": "talos", "patches": ["machine: {}\n"]})


def test_talos_machines_have_their_template_and_patches() -> None:
    made = objects(TALOS)
    template = made["ProxmoxMachineTemplate"]["spec"]["template"]["spec"]
    assert template["templateName"] == "talos"
    control_plane = made["TalosControlPlane"]["spec"]
    assert control_plane["infrastructureTemplate"]["name"] == "management-control-plane"
    config = control_plane["controlPlaneConfig"]["controlplane"]
    network, cluster, own = map(yaml.safe_load, config["strategicPatches"])
    assert network["machine"]["network"]["interfaces"][0]["vip"] == {"ip": "10.0.0.5"}
    assert cluster["cluster"]["allowSchedulingOnControlPlanes"] is True
    assert cluster["cluster"]["network"]["cni"] == {"name": "none"}
    assert own == {"machine": {}}
    assert made["Cluster"]["spec"]["controlPlaneRef"]["kind"] == "TalosControlPlane"
    lines = list(progress.preview(TALOS, ()))
    assert "Talos from template talos; etcd begins on VM 1" in lines
    assert any("a virtual IP by Talos" in line for line in lines)


def test_without_virtual_ip_talos_announces_none() -> None:
    made = parsed(
        bootstrap="talos", talos={"template": "t"}, virtual_ip="none", endpoint="api.example"
    )
    config = objects(made)["TalosControlPlane"]["spec"]["controlPlaneConfig"]["controlplane"]
    assert "vip" not in "".join(config["strategicPatches"])


URL = {"image": "https://images.example/talos.qcow2"}
WRONG_TALOS = [
    pytest.param({}, "set talos.template", id="no template"),
    pytest.param({"talos": {"template": "t"}, "template": URL}, "remove it", id="two templates"),
    pytest.param({"template": {"image": "debian-13"}}, "the URL", id="another system"),
    pytest.param({"template": URL | {"packages": "http://p"}}, "for kubeadm", id="packages"),
    pytest.param({"template": URL, "ssh_keys": ["k"]}, "no SSH", id="SSH"),
    pytest.param({"template": URL, "image_repository": "r"}, "talos.patches", id="images"),
    pytest.param({"template": URL, "cni": "bridge"}, "manifests", id="CNI"),
    pytest.param({"talos": {"template": "t", "patches": ["a: ["]}}, "not YAML", id="patch"),
]


@pytest.mark.parametrize("changes, message", WRONG_TALOS)
def test_what_cannot_work_with_talos_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        parsed(bootstrap="talos", **changes)


def test_the_template_that_bootstrap_makes_for_talos_is_named_by_its_machines() -> None:
    made = objects(parsed(bootstrap="talos", template=URL))["ProxmoxMachineTemplate"]
    assert made["spec"]["template"]["spec"]["templateName"] == "management-node"


REGION = RegionConfig(
    region="north",
    urls=("https://pve1:8006",),
    auth=TokenAuth("moxwell@pve!t", SecretValue("s3cret")),
    ca_pem="PEM",
    zones={"a": ("pve1",)},
)
PASSWORD = RegionConfig(
    region="south",
    urls=("https://pve2:8006", "https://pve3:8006"),
    auth=PasswordAuth("root@pam", SecretValue("pass")),
    fingerprint="0" * 64,
    insecure=True,
)


def test_the_operator_gets_the_regions_without_paths_of_this_machine() -> None:
    files = operator_config.config_files([REGION, PASSWORD])
    found = config.parse(files["config.yaml"], read=lambda name: files[name])
    assert [str(r.auth) for r in found] == [str(r.auth) for r in (REGION, PASSWORD)]
    revealed = [
        r.auth.secret.reveal() if isinstance(r.auth, TokenAuth) else r.auth.password.reveal()
        for r in found
    ]
    assert revealed == ["s3cret", "pass"]
    assert [(r.region, r.urls, r.ca_pem, r.fingerprint, r.insecure, r.zones) for r in found] == [
        (r.region, r.urls, r.ca_pem, r.fingerprint, r.insecure, r.zones) for r in (REGION, PASSWORD)
    ]


def test_the_components_get_configuration_and_image() -> None:
    made = operator_components.configured({"config.yaml": "clusters: []"}, "mirror/moxwell:v1")
    (secret,) = [o for o in made if o["kind"] == "Secret"]
    assert set(secret["data"]) == {"config.yaml"}
    (deployment,) = [o for o in made if o["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "mirror/moxwell:v1"
