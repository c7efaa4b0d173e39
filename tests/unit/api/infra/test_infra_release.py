"""The clusterctl release: components and templates fulfil the provider contract."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from moxwell.api import registry
from moxwell.api.infra.admission import validation_errors

RELEASE = Path(__file__).parents[4] / "release"
VALUES = {
    "CLUSTER_NAME": "c", "NAMESPACE": "default", "CONTROL_PLANE_ENDPOINT_IP": "10.0.0.4",
    "NODE_IP_RANGES": "[10.0.0.10-10.0.0.99]", "GATEWAY": "10.0.0.1",
    "KUBERNETES_VERSION": "v1.34.1", "NODE_IP_RANGES_A": "[10.0.0.10]",
    "NODE_IP_RANGES_B": "[10.1.0.10]", "GATEWAY_A": "10.0.0.1", "GATEWAY_B": "10.1.0.1",
}  # fmt: skip


def components() -> list[dict[str, Any]]:
    spec = importlib.util.spec_from_file_location("release_render", RELEASE / "render.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: list[dict[str, Any]] = module.components()
    return made


def test_everything_is_in_one_namespace() -> None:
    found = components()
    (space,) = [o for o in found if o["kind"] == "Namespace"]
    spaced = [o["metadata"].get("namespace") for o in found]
    assert {s for s in spaced if s} == {space["metadata"]["name"]}
    label = "cluster.x-k8s.io/provider"
    assert all(o["metadata"]["labels"][label] == "infrastructure-moxwell" for o in found)


def test_the_manager_deployment_has_its_name_and_namespace_flag() -> None:
    (deployment,) = [o for o in components() if o["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["name"] == "manager"
    assert any(a.startswith("--namespace=") for a in container["args"])


def test_crds_name_both_contracts_and_convert() -> None:
    crds = [o for o in components() if o["kind"] == "CustomResourceDefinition"]
    assert len(crds) == 4
    for crd in crds:
        labels = crd["metadata"]["labels"]
        versions = {v["name"] for v in crd["spec"]["versions"]}
        for contract in ("v1beta1", "v1beta2"):
            assert set(labels[f"cluster.x-k8s.io/{contract}"].split("_")) <= versions
        assert crd["spec"]["conversion"]["strategy"] == "Webhook"


def test_secrets_are_read_by_name_only() -> None:
    (role,) = [o for o in components() if o["kind"] == "ClusterRole"]
    verbs = [set(r["verbs"]) for r in role["rules"] if "secrets" in r["resources"]]
    assert verbs == [{"get", "patch"}]
    assert not any("*" in r["verbs"] + r["resources"] + r["apiGroups"] for r in role["rules"])


def test_metadata_names_the_contract() -> None:
    said = yaml.safe_load((RELEASE / "metadata.yaml").read_text())
    assert said["kind"] == "Metadata"
    assert said["releaseSeries"][0]["contract"] == "v1beta2"


def fill(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        return VALUES.get(match[1], match[2] or "")

    return re.sub(r"\$\{(\w+)(?::=([^}]*))?\}", value, text)


@pytest.mark.parametrize(
    "path", sorted(RELEASE.glob("cluster-template*.yaml")), ids=lambda p: p.stem
)
def test_cluster_templates_are_accepted(path: Path) -> None:
    kinds = {(k.resource.api_version, k.resource.kind): k for k in registry.OURS}
    documents = [d for d in yaml.safe_load_all(fill(path.read_text())) if d]
    ours = [d for d in documents if (d["apiVersion"], d["kind"]) in kinds]
    assert ours
    for document in ours:
        made = msgspec.convert(document, kinds[document["apiVersion"], document["kind"]])
        assert validation_errors(made) == ()
    named = {(d["kind"], d["metadata"]["name"]) for d in documents}
    for document in documents:
        for kind, name in _references(document):
            assert (kind, name) in named


def _references(tree: Any) -> list[tuple[str, str]]:
    if isinstance(tree, list):
        return [r for item in tree for r in _references(item)]
    if not isinstance(tree, dict):
        return []
    own = [(tree["kind"], tree["name"])] if "apiGroup" in tree and "name" in tree else []
    return own + [r for value in tree.values() for r in _references(value)]
