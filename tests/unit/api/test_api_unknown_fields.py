"""Fields that a kind does not have are found at any depth, with the nearest field."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from moxwell.api import registry
from moxwell.api.cozystack import Kubernetes
from moxwell.api.unknown_fields import new_unknown_fields

APPS, INFRA = "apps.cozystack.io/v1alpha1", "infrastructure.cluster.x-k8s.io"
CAPI = "cluster.x-k8s.io"
ROOT = Path(__file__).parents[3]


def manifest(api: str, kind: str, **body: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "a"}, **body}


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (manifest(APPS, "Kubernetes", sepc={}), "sepc: unknown field (did you mean spec?)"),
        (
            manifest(APPS, "Kubernetes", spec={"versoin": "v1.34.1"}),
            "spec.versoin: unknown field (did you mean version?)",
        ),
        (
            manifest(APPS, "Kubernetes", spec={"nodeGroups": [{"name": "a", "instanceTyp": "x"}]}),
            "spec.nodeGroups[0].instanceTyp: unknown field (did you mean instanceType?)",
        ),
        (
            manifest(APPS, "Kubernetes", spec={"nodeGroups": {"a": {"kubelet": {"maxPod": 1}}}}),
            "spec.nodeGroups[a].kubelet.maxPod: unknown field",
        ),
        (
            manifest(APPS, "Tenant", spec={"resourceQuota": {"cpu": 4}}),
            "spec.resourceQuota: unknown field (did you mean resourceQuotas?)",
        ),
        (
            manifest(APPS, "Tenant", spec={"network": {"allowForm": []}}),
            "spec.network.allowForm: unknown field (did you mean allowFrom?)",
        ),
        (
            manifest(
                f"{INFRA}/v1alpha2",
                "ProxmoxMachineTemplate",
                spec={"template": {"spec": {"disks": {"bootVolume": {"sizeGB": 20}}}}},
            ),
            "spec.template.spec.disks.bootVolume.sizeGB: unknown field (did you mean sizeGb?)",
        ),
        (
            manifest(f"{CAPI}/v1beta2", "Cluster", spec={"clusterNetwrk": {}}),
            "spec.clusterNetwrk: unknown field (did you mean clusterNetwork?)",
        ),
        (
            manifest(
                f"{CAPI}/v1beta2", "Cluster", spec={"topology": {"workers": {"machinePool": []}}}
            ),
            "spec.topology.workers.machinePool: unknown field (did you mean machinePools?)",
        ),
        (
            manifest(
                f"{CAPI}/v1beta1",
                "MachineDeployment",
                spec={"template": {"spec": {"versoin": "v1.34.1"}}},
            ),
            "spec.template.spec.versoin: unknown field (did you mean version?)",
        ),
        (
            manifest(
                f"bootstrap.{CAPI}/v1beta2",
                "KubeadmConfigTemplate",
                spec={"template": {"spec": {"clusterConfiguration": {"dnss": {}}}}},
            ),
            "spec.template.spec.clusterConfiguration.dnss: unknown field (did you mean dns?)",
        ),
        (
            manifest(f"controlplane.{CAPI}/v1alpha1", "KamajiControlPlane", spec={"kubelt": {}}),
            "spec.kubelt: unknown field (did you mean kubelet?)",
        ),
        (
            manifest(
                "kamaji.clastix.io/v1alpha1", "DataStore", spec={"tlsConfig": {"clientCert": 1}}
            ),
            "spec.tlsConfig.clientCert: unknown field (did you mean clientCertificate?)",
        ),
        (
            manifest(f"ipam.{CAPI}/v1alpha2", "InClusterIPPool", spec={"adresses": []}),
            "spec.adresses: unknown field (did you mean addresses?)",
        ),
    ],
)
def test_an_unknown_field_is_named_with_the_nearest(tree: dict[str, Any], said: str) -> None:
    assert [str(e) for e in registry.field_errors(tree)] == [said]


@pytest.mark.parametrize(
    "tree",
    [
        manifest(
            APPS, "Kubernetes", spec={"addons": {"anything": {"goes": True}}}, status={"x": 1}
        ),
        manifest("v1", "ConfigMap", datta={}),
        manifest("cluster.x-k8s.io/v1beta2", "Cluster", spec={"topology": {}}),
    ],
)
def test_free_maps_status_and_kinds_of_others_are_not_checked(tree: dict[str, Any]) -> None:
    assert registry.field_errors(tree) == ()


def test_an_object_that_was_stored_with_an_unknown_field_can_be_changed() -> None:
    old = manifest(APPS, "Kubernetes", spec={"old": 1})
    new = manifest(APPS, "Kubernetes", spec={"old": 2, "version": "v1.34.1"})
    assert new_unknown_fields(Kubernetes, new, old) == ()
    assert len(new_unknown_fields(Kubernetes, {**new, "spec": {"old": 2, "newer": 1}}, old)) == 1


def documents() -> list[dict[str, Any]]:
    """Every manifest of the examples and of the pages."""
    texts = [file.read_text() for file in sorted((ROOT / "examples").rglob("*.yaml"))]
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
        texts += map(textwrap.dedent, blocks)
    texts = [text for text in texts if "kind:" in text and "apiVersion:" in text]
    found = [doc for text in texts for doc in yaml.safe_load_all(text)]
    return [doc for doc in found if isinstance(doc, dict)]


def test_examples_and_pages_have_known_fields_only() -> None:
    found = documents()
    assert [str(e) for doc in found for e in registry.field_errors(doc)] == []
    assert any(doc.get("kind") == "Kubernetes" for doc in found)
