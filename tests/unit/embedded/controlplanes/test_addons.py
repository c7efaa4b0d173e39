"""Add-ons of tenants on binaries: settings and objects."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from moxwell.config_file import InvalidConfig
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes.addons.built_in import (
    AddonSettings,
    Download,
    built_in_objects,
)
from moxwell.embedded.controlplanes.addons.charts import (
    Chart,
    ChartRefused,
    HelmMissing,
    fill,
    render,
    tenant_facts,
)
from moxwell.embedded.controlplanes.addons.settings import load_addons
from moxwell.embedded.controlplanes.addons.sources import AddonSources, ManifestChecksumMismatch
from moxwell.embedded.controlplanes.addons.state import unready
from moxwell.runtime.key import Key

SPEC = HostedControlPlaneSpec(key=Key("a", "b"), uid="u", version="v1.36.3", replicas=1)
ROOT = Path(__file__).parents[4]
URL = "https://b.a.k8s.example:6443"


def config(folder: Path, text: str) -> Path:
    path = folder / "moxwell.yaml"
    path.write_text(f"control_planes: {{addons: {text}}}")
    return path


def names(objects: Iterable[dict[str, Any]], kind: str) -> set[str]:
    return {o["metadata"]["name"] for o in objects if o["kind"] == kind}


def test_without_settings_a_tenant_gets_all_that_is_built_in(tmp_path: Path) -> None:
    path = tmp_path / "moxwell.yaml"
    path.write_text("clusters: []")
    objects = built_in_objects(load_addons(path), SPEC, URL)
    assert names(objects, "DaemonSet") == {"kube-proxy", "moxwell-cni", "moxwell-csi-node"}
    assert names(objects, "Deployment") == {"coredns", "metrics-server"}
    assert names(objects, "APIService") == {"v1beta1.metrics.k8s.io"}


def test_each_of_them_can_be_left_out(tmp_path: Path) -> None:
    text = "{kube_proxy: false, coredns: false, metrics_server: false, csi: false, cni: none}"
    assert built_in_objects(load_addons(config(tmp_path, text)), SPEC, URL) == ()


def test_the_node_plugin_is_that_of_the_release() -> None:
    """But for the image, the labels, and the address of the API server."""
    made = built_in_objects(AddonSettings(csi=True), SPEC, URL)
    released = yaml.safe_load_all((ROOT / "release/csi.yaml").read_text())
    wanted = [o for o in released if o["metadata"]["name"] == "moxwell-csi-node"]
    (ours,) = (o for o in made if o["kind"] == "DaemonSet")
    (theirs,) = (o for o in wanted if o["kind"] == "DaemonSet")
    mine, other = (o["spec"]["template"]["spec"] for o in (ours, theirs))
    assert mine["volumes"] == other["volumes"]
    for field in ("args", "livenessProbe", "resources", "securityContext", "volumeMounts"):
        assert mine["containers"][0][field] == other["containers"][0][field]
    env = {row["name"]: row.get("value") for row in mine["containers"][0]["env"]}
    assert env["KUBERNETES_SERVICE_HOST"] == "b.a.k8s.example"
    assert env["KUBERNETES_SERVICE_PORT"] == "6443"
    (rules,) = (o["rules"] for o in made if o["kind"] == "ClusterRole")
    assert rules in [o["rules"] for o in wanted if o["kind"] == "ClusterRole"]


def test_settings_of_kube_proxy_are_merged(tmp_path: Path) -> None:
    found = load_addons(config(tmp_path, "{kube_proxy: {mode: nftables}}"))
    (files,) = (
        o["data"]
        for o in built_in_objects(found, SPEC, URL)
        if (o["kind"], o["metadata"]["name"]) == ("ConfigMap", "kube-proxy")
    )
    assert yaml.safe_load(files["config.conf"])["mode"] == "nftables"


def test_manifests_are_read_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "cni.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: cni}\n")
    found = load_addons(config(tmp_path, "{manifests: [cni.yaml], kube_proxy: false}"))
    assert found.coredns
    assert not found.kube_proxy
    assert built_in_objects(found, SPEC, URL)[-1]["metadata"]["name"] == "cni"


@pytest.mark.parametrize(
    "text, message",
    [
        ("[]", "mapping"),
        ("{cni: cilium}", "bridge or none"),
        ("{dns: true}", "unknown dns"),
        ("{manifests: [{url: https://x.example/a.yaml}]}", "sha256"),
        ("{manifests: [{url: 'file:///a', sha256: '" + "0" * 64 + "'}]}", "https"),
        ("{charts: [cilium]}", "list of name"),
        ("{charts: [{name: cilium}]}", "name and chart"),
        ("{charts: [{name: a, chart: b, values: 1}]}", "mapping"),
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
    objects = {(o["kind"], o["metadata"]["name"]): o for o in built_in_objects(settings, SPEC, URL)}
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


@pytest.mark.parametrize(
    "status, text",
    [
        ({"desiredNumberScheduled": 2, "numberAvailable": 2, "observedGeneration": 1}, ""),
        ({"desiredNumberScheduled": 0, "observedGeneration": 1}, ""),
        (
            {"desiredNumberScheduled": 2, "numberAvailable": 1, "observedGeneration": 1},
            "net: 1 of 2 pods available",
        ),
        ({}, "net: not observed yet"),
        ({"availableReplicas": 3, "observedGeneration": 1}, ""),
        ({"observedGeneration": 1}, "net: 0 of 3 pods available"),
    ],
)
def test_what_an_addon_waits_for(status: dict[str, int], text: str) -> None:
    meta = {"name": "net", "generation": 1}
    assert unready({"metadata": meta, "spec": {"replicas": 3}, "status": status}) == text


def test_values_of_charts_get_the_facts_of_the_tenant() -> None:
    facts = tenant_facts(SPEC, URL)
    values = {"host": "$API_HOST", "port": "${API_PORT}", "list": ["$POD_CIDR", "$HOME"], "n": 1}
    assert fill(values, facts) == {
        "host": "b.a.k8s.example",
        "port": "6443",
        "list": ["10.244.0.0/16", "$HOME"],
        "n": 1,
    }


def helm(folder: Path, script: str) -> Path:
    program = folder / "helm"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


async def test_a_rendered_chart_is_placed_in_its_namespace(tmp_path: Path) -> None:
    program = helm(
        tmp_path, "echo 'apiVersion: v1'; echo 'kind: Secret'; echo 'metadata: {name: s}'"
    )
    chart = Chart(name="net", chart="net", namespace="network")
    space, secret = await render(program, chart, "v1.36.3", {})
    assert (space["kind"], space["metadata"]["name"]) == ("Namespace", "network")
    assert secret["metadata"] == {"namespace": "network", "name": "s"}
    system = Chart(name="net", chart="net")  # its namespace is not the chart's to delete
    assert [o["kind"] for o in await render(program, system, "v1.36.3", {})] == ["Secret"]


async def test_what_helm_refuses_is_said(tmp_path: Path) -> None:
    chart = Chart(name="net", chart="net")
    with pytest.raises(ChartRefused, match="no such value"):
        await render(helm(tmp_path, "echo no such value >&2; exit 1"), chart, "v1.36.3", {})
    with pytest.raises(HelmMissing, match="install it"):
        await render(tmp_path / "none", chart, "v1.36.3", {})


async def test_a_fetched_manifest_needs_its_checksum_and_is_kept(tmp_path: Path) -> None:
    text = b"apiVersion: v1\nkind: Namespace\nmetadata: {name: net}\n"
    good = hashlib.sha256(text).hexdigest()
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(body=text)

    app = web.Application()
    app.router.add_get("/net.yaml", answer)
    async with TestServer(app) as server:
        url = str(server.make_url("/net.yaml"))
        for checksum, objects in ((good, 1), (good, 1)):
            settings = AddonSettings(downloads=(Download(url=url, sha256=checksum),))
            found = await AddonSources(settings, tmp_path / "kept").objects(SPEC, URL)
            assert len(found) == objects
        assert asked == ["/net.yaml"]
        settings = AddonSettings(downloads=(Download(url=url, sha256="0" * 64),))
        with pytest.raises(ManifestChecksumMismatch, match="SHA-256 of"):
            await AddonSources(settings, tmp_path / "kept").objects(SPEC, URL)
