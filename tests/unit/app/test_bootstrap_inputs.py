"""What ``moxwell bootstrap`` reads before it starts: regions, manifests and the template."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from moxwell.api import registry
from moxwell.app.bootstrap_inputs import read_inputs, template_design, template_mark
from moxwell.app.bootstrap_run import needed_features
from moxwell.config_file import InvalidConfig
from moxwell.errors import Invalid

REGION = {"region": "north", "url": "https://pve1:8006", "token_id": "a@pve!t", "token_secret": "s"}
ZONE = {
    "region": "north",
    "addresses": ["10.0.0.10-10.0.0.19"],
    "gateway": "10.0.0.1",
    "hosts": ["pve1"],
    "vlan": 7,
}
SECTION: dict[str, Any] = {
    "kubernetes": "v1.34.1",
    "endpoint": "10.0.0.5",
    "zones": [ZONE],
    "manifests": ["cluster-api.yaml"],
    "template": {"image": "ubuntu-24.04", "checksum": "sha256:" + "0" * 64},
}


def written(folder: Path, **changes: Any) -> Path:
    (folder / "cluster-api.yaml").write_text(registry.render_crds(upstream=True))
    path = folder / "moxwell.yaml"
    tree = {"clusters": [REGION], "management_cluster": SECTION | changes}
    path.write_text(yaml.safe_dump(tree))
    return path


def test_manifests_are_stages_and_the_operator_is_the_last(tmp_path: Path) -> None:
    found = read_inputs(written(tmp_path))
    assert [stage.name for stage in found.stages] == ["cluster-api.yaml", "moxwell"]
    assert found.stages[1].deployments() == [("moxwell-system", "moxwell-controller-manager")]
    assert "s3cret" not in repr(found.stages)


def test_the_built_in_cni_is_the_first_stage_and_needs_no_service(tmp_path: Path) -> None:
    image = "mirror/moxwell:v1"
    found = read_inputs(written(tmp_path, cni="bridge", operator_image=image, pods="10.9.0.0/16"))
    assert [stage.name for stage in found.stages] == ["cni", "cluster-api.yaml", "moxwell"]
    (daemon,) = [obj for obj in found.stages[0].objects if obj["kind"] == "DaemonSet"]
    (container,) = daemon["spec"]["template"]["spec"]["containers"]
    assert (container["image"], "--cluster-cidr=10.9.0.0/16" in container["args"]) == (image, True)
    env = {row["name"]: row.get("value") for row in container["env"]}
    assert (env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"]) == ("10.0.0.5", "6443")


def test_a_zone_in_an_unknown_region_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="no region south"):
        read_inputs(written(tmp_path, zones=[ZONE | {"region": "south"}]))


@pytest.mark.parametrize("text", ["{a: [", "kind: Pod"])
def test_a_file_that_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "cni.yaml").write_text(text)
    with pytest.raises(Invalid, match=r"cni\.yaml"):
        read_inputs(written(tmp_path, manifests=["cni.yaml"]))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot read"):
        read_inputs(written(tmp_path, manifests=["none.yaml"]))


def test_the_template_has_the_version_the_software_and_a_mark_of_this_cluster(
    tmp_path: Path,
) -> None:
    spec = read_inputs(written(tmp_path)).spec
    assert spec.template is not None
    design = template_design(spec, spec.template, "north")
    assert design.name == "management-node"
    assert "k8s-v1.34.1" in design.tags
    assert design.hosts == ("pve1",)
    assert "tag=7" in design.hardware["net0"]
    assert '"kubernetes":"v1.34.1"' in design.description.replace(" ", "")
    other = read_inputs(written(tmp_path, name="other")).spec
    assert template_mark(other) != template_mark(spec) == design.mark


def test_the_privileges_depend_on_what_is_made(tmp_path: Path) -> None:
    made = read_inputs(written(tmp_path, pool="kube")).spec
    assert needed_features(made) == ("machines", "templates", "pools")
    plain = read_inputs(written(tmp_path, template=None)).spec
    assert needed_features(plain) == ("machines",)


def test_the_template_of_talos_has_no_agent_and_no_software(tmp_path: Path) -> None:
    image = {"image": "https://images.example/talos.qcow2"}
    found = read_inputs(written(tmp_path, bootstrap="talos", template=image))
    assert found.spec.template is not None
    design = template_design(found.spec, found.spec.template, "north")
    assert (design.hardware["agent"], design.tags, design.description) == ("0", ("talos",), "")
