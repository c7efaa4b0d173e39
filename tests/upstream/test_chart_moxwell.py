"""The chart of the operator, rendered by genuine Helm: switches, rights, refused values."""

import importlib.util
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import moxwell
from moxwell.bootstrap import join_tokens
from moxwell.controllers.karpenter.options import AutoscalerOptions, FeatureGates, PackingMode
from moxwell.management import operator_components
from moxwell.pve import config
from support.helm import CHARTS, Helm, Rendered

pytestmark = pytest.mark.genuine
CHART, RELEASE = CHARTS / "moxwell", CHARTS.parent / "release"
SPACE = "proxmox"
Json = dict[str, Any]
CLUSTERS: Json = {"clusters": [{"region": "north", "url": "https://pve1:8006"}]}
SCALING: Json = {"operator": {"karpenter": True, "scaledCluster": "capi/own"}}
ALL: Json = {"config": CLUSTERS, "cloud": {"enabled": True}, "csi": {"enabled": True}, **SCALING}
MANAGER = {
    ("Deployment", "moxwell-controller-manager"),
    ("Service", "moxwell-webhook-service"),
    ("ValidatingWebhookConfiguration", "moxwell-validating-webhook-configuration"),
}
CLOUD = {("Deployment", "moxwell-cloud-controller-manager")}
CSI = {
    ("Deployment", "moxwell-csi-controller"),
    ("DaemonSet", "moxwell-csi-node"),
    ("CSIDriver", "csi.moxwell.dev"),
}
CLAIMS = {
    ("ValidatingAdmissionPolicy", "moxwell-claims"),
    ("ValidatingAdmissionPolicyBinding", "moxwell-claims"),
}
CLASSES = {(kind, "moxwell-node-classes") for kind, _ in CLAIMS}
ACCESS = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
Rights = set[tuple[str, str, str, str]]


@pytest.fixture
def helm(envtest_program: Callable[[str], Path], tmp_path: Path) -> Helm:
    return Helm(envtest_program("helm"), tmp_path)


def script(name: str) -> ModuleType:
    """A program of ``release/`` as a module."""
    spec = importlib.util.spec_from_file_location(f"release_{name}", RELEASE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rights(rules: Iterable[Json]) -> Rights:
    """Every single right: group, resource, name and verb."""
    return {
        (group, resource, name, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize(
    ("values", "wanted", "crds"),
    [
        pytest.param({}, MANAGER | CLAIMS, 6, id="defaults"),
        pytest.param({"operator": {"tenancy": False}}, MANAGER | CLAIMS, 4, id="machines only"),
        pytest.param({"operator": {"infra": False}}, MANAGER, 2, id="tenants only"),
        pytest.param({"crds": {"install": False}}, MANAGER | CLAIMS, 0, id="without CRDs"),
        pytest.param(
            {"operator": {"enabled": False}, "cloud": {"enabled": True}, "config": CLUSTERS},
            CLOUD | {("Secret", "moxwell-config")},
            0,
            id="cloud controller manager only",
        ),
        pytest.param(
            {"operator": {"enabled": False}, "csi": {"enabled": True}, "existingConfigSecret": "x"},
            CSI,
            0,
            id="CSI driver only",
        ),
        pytest.param(
            ALL,
            MANAGER | CLAIMS | CLASSES | CLOUD | CSI | {("Secret", "moxwell-config")},
            13,
            id="all",
        ),
        pytest.param(SCALING, MANAGER | CLAIMS | CLASSES, 13, id="autoscaler"),
    ],
)
def test_parts_can_be_switched(
    helm: Helm, values: Json, wanted: set[tuple[str, str]], crds: int
) -> None:
    found = helm.template("moxwell", SPACE, values)
    kinds = [kind for kind, _ in found]
    assert kinds.count("CustomResourceDefinition") == crds
    others = {key for key in found if key[0] not in {*ACCESS, "CustomResourceDefinition"}}
    assert others == wanted
    pods = {obj["spec"]["template"]["spec"]["serviceAccountName"] for obj in workloads(found)}
    assert {name for kind, name in found if kind == "ServiceAccount"} == pods
    for kind, name in found:
        if kind.endswith("Binding") and kind in ACCESS:
            (subject,) = found[kind, name]["subjects"]
            if subject["kind"] == "Group":
                assert subject["name"] == join_tokens.GROUP
                continue
            assert (subject["name"] in pods, subject["namespace"]) == (True, SPACE)


def workloads(found: Rendered) -> list[Json]:
    return [obj for (kind, _), obj in found.items() if kind in ("Deployment", "DaemonSet")]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"operator": {"infar": True}}, "infar"),
        ({"cloud": {"controllers": ["cloud-nodes"]}}, "/cloud/controllers/0"),
        ({"csi": {"storageClasses": [{"name": "a"}]}}, "storage"),
        ({"operator": {"webhookPort": 70000}}, "webhookPort"),
        ({"image": {"tag": "latest"}}, "tag"),
        ({"image": {"digest": "sha256:1234"}}, "digest"),
        ({"config": {"clusters": [{"region": "a", "tokenid": "b"}]}}, "tokenid"),
        ({"config": {"features": {}}}, "config.clusters is missing"),
        ({"cloud": {"enabled": True}}, "cloud.enabled needs regions"),
        ({"csi": {"enabled": True}}, "csi.enabled needs regions"),
        ({"config": CLUSTERS, "existingConfigSecret": "x"}, "not both"),
        ({"configFiles": {"ca.pem": "x"}}, "configFiles needs config"),
        ({"operator": {"infra": False, "tenancy": False}}, "operator.infra or operator.tenancy"),
        ({"operator": {"enabled": False}}, "nothing is enabled"),
        ({"operator": {"karpenter": True}}, "needs operator.scaledCluster, NAMESPACE/NAME"),
        ({"operator": {**SCALING["operator"], "scaledCluster": "own"}}, "scaledCluster"),
        ({"operator": {**SCALING["operator"], "infra": False}}, "needs operator.infra"),
        ({"operator": {**SCALING["operator"], "autoscaler": {"mode": "fast"}}}, "mode"),
        ({"operator": {**SCALING["operator"], "namespaces": ["a"]}}, "remove operator.namespaces"),
    ],
)
def test_values_that_cannot_work_are_refused(helm: Helm, values: Json, said: str) -> None:
    done = helm.run("template", "moxwell", str(CHART), values=values)
    assert done.returncode != 0
    assert said in done.stderr


def test_the_schema_knows_every_key_of_a_region() -> None:
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    region = schema["properties"]["config"]["properties"]["clusters"]["items"]
    assert set(region["properties"]) == config.KEYS


def test_crds_are_those_of_the_product(helm: Helm) -> None:
    written = {path.name: path.read_text() for path in (CHART / "files" / "crds").iterdir()}
    assert written == script("chart").files(), "run `make chart`"
    found = helm.template("moxwell", SPACE, SCALING)
    for name, text in written.items():
        wanted = yaml.load(text, Loader=yaml.CSafeLoader)
        crd = found["CustomResourceDefinition", name.removesuffix(".yaml")]
        assert crd["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        if "webhook" in wanted["spec"].get("conversion", {}):
            wanted["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["namespace"] = SPACE
        assert crd == wanted


def test_machines_have_the_rights_of_the_clusterctl_release(helm: Helm) -> None:
    found = helm.template("moxwell", SPACE, {"operator": {"tenancy": False}})
    release, name = operator_components, "moxwell-controller-manager"
    assert rights(found["ClusterRole", name]["rules"]) == rights(release.cluster_rules())
    assert rights(found["Role", name]["rules"]) == rights(release.own_rules())
    policy, binding = release.claim_policy()
    spec = found["ValidatingAdmissionPolicy", "moxwell-claims"]["spec"]
    for validation in spec["validations"]:
        validation["expression"] = validation["expression"].replace("\n", " ")
    assert spec == policy["spec"]
    assert found["ValidatingAdmissionPolicyBinding", "moxwell-claims"]["spec"] == binding["spec"]
    hooks = found["ValidatingWebhookConfiguration", release.VALIDATING]["webhooks"]
    assert [hook["rules"] for hook in hooks] == [
        h["rules"] for h in release.webhooks()[1]["webhooks"]
    ]


def test_the_autoscaler_writes_secrets_in_two_namespaces_only(helm: Helm) -> None:
    found = helm.template("moxwell", SPACE, SCALING)
    plain = helm.template("moxwell", SPACE)
    name, words = "moxwell-controller-manager", "--controllers=infra,tenancy,karpenter"
    assert {("manager", words), ("manager", "--scaled-cluster=capi/own")} <= arguments(
        found["Deployment", name]
    )
    added = rights(found["ClusterRole", name]["rules"]) - rights(
        plain["ClusterRole", name]["rules"]
    )
    assert ("", "pods/eviction", "", "create") in added
    assert not {r for r in added if r[1] == "secrets"}
    spaces = {}
    for kind, role in found.keys() - plain.keys():
        if kind == "Role":
            spaces[found[kind, role]["metadata"]["namespace"]] = rights(found[kind, role]["rules"])
            assert ("RoleBinding", role) in found
    assert spaces.keys() == {"capi", "kube-system"}
    assert ("", "secrets", "", "create") in spaces["capi"]
    assert ("", "secrets", "", "delete") in spaces["kube-system"]


def test_settings_of_the_autoscaler_are_flags_that_the_operator_accepts(helm: Helm) -> None:
    chosen = {
        "mode": "exact",
        "minValuesPolicy": "BestEffort",
        "batchMaxDuration": "20s",
        "maxBatchPods": 2_000_000,
        "featureGates": {"nodeRepair": True, "nodeOverlay": False},
    }
    values = {"operator": {**SCALING["operator"], "autoscaler": chosen}}
    found = helm.template("moxwell", SPACE, values)
    manager = found["Deployment", "moxwell-controller-manager"]
    args = manager["spec"]["template"]["spec"]["containers"][0]["args"]
    flags = dict(a.removeprefix("--").split("=", 1) for a in args if "=" in a)
    options = AutoscalerOptions().with_values(
        {
            "mode": flags["autoscaler-mode"],
            "minValuesPolicy": flags["min-values-policy"],
            "batchMaxDuration": flags["batch-max-duration"],
            "maxBatchPods": flags["max-batch-pods"],
            "featureGates": flags["feature-gates"],
        }
    )
    assert options.mode is PackingMode.EXACT
    assert options.max_batch_pods == 2_000_000
    assert options.gates == FeatureGates(node_repair=True, node_overlay=False)
    assert "preference-policy" not in flags  # the configuration file decides


def test_storage_is_that_of_the_release(helm: Helm) -> None:
    values = {**ALL, "operator": {"enabled": False}, "csi": {"enabled": True, "snapshotter": True}}
    found = helm.template("moxwell", "kube-system", values)
    docs = [doc for doc in yaml.safe_load_all((RELEASE / "csi.yaml").read_text()) if doc]
    for wanted in docs:
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        if "rules" in wanted:
            assert rights(found[kind, name]["rules"]) == rights(wanted["rules"])
        if kind in ("Deployment", "DaemonSet"):
            assert images(found[kind, name]) == images(wanted)
            assert arguments(found[kind, name]) >= arguments(wanted)


def images(workload: Json) -> dict[str, str]:
    return {c["name"]: c["image"] for c in workload["spec"]["template"]["spec"]["containers"]}


def arguments(workload: Json) -> set[tuple[str, str]]:
    containers = workload["spec"]["template"]["spec"]["containers"]
    return {(c["name"], word) for c in containers for word in c["args"]}


def test_images_have_the_version_of_the_product(helm: Helm) -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (
        moxwell.__version__,
        f"v{moxwell.__version__}",
    )
    ours = f"ghcr.io/moxwell/moxwell:v{moxwell.__version__}"
    assert operator_components.container()["image"] == ours
    for workload in workloads(helm.template("moxwell", SPACE, ALL)):
        found = images(workload).values()
        assert ours in found
        assert not [image for image in found if ":v" not in image]
    digest = "sha256:" + "a" * 64
    (pod,) = workloads(helm.template("moxwell", SPACE, {"image": {"digest": digest}}))
    assert set(images(pod).values()) == {f"ghcr.io/moxwell/moxwell@{digest}"}


def test_only_the_node_plugin_is_privileged(helm: Helm) -> None:
    for workload in workloads(helm.template("moxwell", SPACE, ALL)):
        pod = workload["spec"]["template"]["spec"]
        if workload["kind"] == "DaemonSet":
            continue
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_a_changed_configuration_restarts_the_pods(helm: Helm) -> None:
    def checksum(values: Json) -> set[str]:
        found = workloads(helm.template("moxwell", SPACE, values))
        pods = [w["spec"]["template"]["metadata"] for w in found]
        return {pod["annotations"]["checksum/config"] for pod in pods}

    other = {**ALL, "configFiles": {"ca.pem": "x"}}
    assert len(checksum(ALL)) == 1
    assert checksum(ALL).isdisjoint(checksum(other))
    secret = helm.template("moxwell", SPACE, other)["Secret", "moxwell-config"]["stringData"]
    assert (yaml.safe_load(secret["config.yaml"]), secret["ca.pem"]) == (CLUSTERS, "x")
