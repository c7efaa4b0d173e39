"""Add-ons of tenants on binaries: settings and objects."""

from pathlib import Path

import pytest
import yaml

from moxwell.config_file import InvalidConfig
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes.addon_settings import load_addons
from moxwell.embedded.controlplanes.binaries.addons import AddonSettings, addon_objects
from moxwell.runtime.key import Key

SPEC = HostedControlPlaneSpec(key=Key("a", "b"), uid="u", version="v1.36.3", replicas=1)
URL = "https://b.a.k8s.example:6443"


def config(folder: Path, text: str) -> Path:
    path = folder / "moxwell.yaml"
    path.write_text(f"control_planes: {{addons: {text}}}")
    return path


def test_without_settings_a_tenant_gets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "moxwell.yaml"
    path.write_text("clusters: []")
    assert addon_objects(load_addons(path), SPEC, URL) == ()


def test_manifests_are_read_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "cni.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: cni}\n")
    found = load_addons(config(tmp_path, "{manifests: [cni.yaml], coredns: true}"))
    assert found.coredns
    assert not found.kube_proxy
    assert addon_objects(found, SPEC, URL)[-1]["metadata"]["name"] == "cni"


@pytest.mark.parametrize(
    "text, message",
    [
        ("[]", "mapping"),
        ("{cni: cilium}", "unknown cni"),
        ("{manifests: cni.yaml}", "list of files"),
        ("{manifests: [none.yaml]}", "cannot read"),
        ("{kube_proxy: perhaps}", "true or false"),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        load_addons(config(tmp_path, text))


@pytest.mark.parametrize("text", ["{a: [", "kind: x"])
def test_a_file_that_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "cni.yaml").write_text(text)
    with pytest.raises(InvalidConfig, match=r"cni\.yaml"):
        load_addons(config(tmp_path, "{manifests: [cni.yaml]}"))


def test_images_come_from_the_chosen_repository_and_proxies_use_the_outer_address() -> None:
    settings = AddonSettings(kube_proxy=True, coredns=True, image_repository="mirror/k8s")
    objects = {(o["kind"], o["metadata"]["name"]): o for o in addon_objects(settings, SPEC, URL)}
    images = [
        c["image"]
        for o in objects.values()
        for c in o.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ())
    ]
    assert images == ["mirror/k8s/kube-proxy:v1.36.3", "mirror/k8s/coredns/coredns:v1.12.1"]
    files = objects["ConfigMap", "kube-proxy"]["data"]
    (cluster,) = yaml.safe_load(files["kubeconfig.conf"])["clusters"]
    assert cluster["cluster"]["server"] == URL
    assert objects["Service", "kube-dns"]["spec"]["clusterIP"] == "10.96.0.10"
