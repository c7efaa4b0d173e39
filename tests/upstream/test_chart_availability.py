"""Metrics, disruption budgets and network policies of the chart, rendered by genuine Helm."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.helm import CHARTS, Helm, Rendered

pytestmark = pytest.mark.genuine
Json = dict[str, Any]
ALL: Json = {
    "config": {"clusters": [{"region": "north", "url": "https://pve1:8006"}]},
    "cloud": {"enabled": True},
    "csi": {"enabled": True},
}
KINDS = ("ServiceMonitor", "PodDisruptionBudget", "NetworkPolicy")
SWITCHES = ("serviceMonitor", "podDisruptionBudget", "networkPolicy")
FOUND = {
    "serviceMonitor": {"operator", "cloud", "csi-controller", "csi-node"},
    "podDisruptionBudget": {"operator", "cloud", "csi-controller"},
    "networkPolicy": {"operator", "csi-controller", "csi-node"},
}


@pytest.fixture
def helm(envtest_program: Callable[[str], Path], tmp_path: Path) -> Helm:
    return Helm(envtest_program("helm"), tmp_path)


def of_kind(rendered: Rendered, kind: str) -> dict[str, Json]:
    return {name.removeprefix("moxwell-"): obj for (k, name), obj in rendered.items() if k == kind}


def pod_ports(rendered: Rendered) -> dict[str, set[str]]:
    """The names of the ports of each part's pods."""
    found: dict[str, set[str]] = {}
    for (kind, _), obj in rendered.items():
        if kind in ("Deployment", "DaemonSet"):
            template = obj["spec"]["template"]
            part = template["metadata"]["labels"]["app.kubernetes.io/component"]
            rows = [p for c in template["spec"]["containers"] for p in c.get("ports", ())]
            found[part] = {p["name"] for p in rows}
    return found


def test_nothing_of_it_is_there_unless_it_is_asked_for(helm: Helm) -> None:
    rendered = helm.template("moxwell", "proxmox", ALL)
    assert [key for key in rendered if key[0] in KINDS] == []


@pytest.mark.parametrize(("switch", "kind"), list(zip(SWITCHES, KINDS, strict=True)))
def test_each_is_switched_alone(helm: Helm, switch: str, kind: str) -> None:
    rendered = helm.template("moxwell", "proxmox", {**ALL, switch: {"enabled": True}})
    assert set(of_kind(rendered, kind)) == FOUND[switch]
    assert {key[0] for key in rendered if key[0] in KINDS} == {kind}


def test_monitors_find_their_services_and_those_the_ports_of_pods(helm: Helm) -> None:
    labels = {"release": "prometheus"}
    values = {**ALL, "serviceMonitor": {"enabled": True, "labels": labels}}
    rendered = helm.template("moxwell", "proxmox", values)
    services = [o for (kind, _), o in rendered.items() if kind == "Service"]
    for part, monitor in of_kind(rendered, "ServiceMonitor").items():
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        chosen = [s for s in services if wanted <= s["metadata"].get("labels", {}).items()]
        assert [s["metadata"]["name"] for s in chosen] == [f"moxwell-{part}-metrics"]
        assert chosen[0]["spec"]["ports"][0]["targetPort"] in pod_ports(rendered)[part]
        assert labels.items() <= monitor["metadata"]["labels"].items()
        secure = monitor["spec"]["endpoints"][0].get("scheme") == "https"
        assert secure == (part == "cloud")


def test_policies_leave_the_webhooks_open_and_metrics_to_those_named(helm: Helm) -> None:
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    values = {**ALL, "networkPolicy": {"enabled": True, "metricsFrom": [peer]}}
    rendered = helm.template("moxwell", "proxmox", values)
    for part, policy in of_kind(rendered, "NetworkPolicy").items():
        rules = {r["ports"][0]["port"]: r.get("from") for r in policy["spec"]["ingress"]}
        metrics = "health" if part == "operator" else "metrics"
        assert rules == {metrics: [peer]} | ({"webhooks": None} if part == "operator" else {})
        assert set(rules) <= pod_ports(rendered)[part]
        assert policy["spec"]["policyTypes"] == ["Ingress"]


@pytest.mark.parametrize(
    "values",
    [
        {"serviceMonitor": {"enable": True}},
        {"serviceMonitor": {"interval": "often"}},
        {"podDisruptionBudget": {"maxUnavailable": 0}},
        {"networkPolicy": {"metricsFrom": "all"}},
    ],
    ids=str,
)
def test_wrong_values_are_refused(helm: Helm, values: Json) -> None:
    done = helm.run("template", "moxwell", str(CHARTS / "moxwell"), values={**ALL, **values})
    assert done.returncode != 0
    assert next(iter(values)) in done.stderr
