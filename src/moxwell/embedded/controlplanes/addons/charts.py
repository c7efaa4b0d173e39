"""
Charts that the operator names, rendered with helm for each tenant.

``helm template`` reads no cluster. Values may name facts of the tenant: ``$API_HOST``,
``$API_PORT``, ``$POD_CIDR``, ``$SERVICE_CIDR`` and ``$CLUSTER_NAME``.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes.addons.objects import Json, make_object
from moxwell.errors import Invalid, Missing

PATIENCE_SECONDS = 60.0
ALWAYS_THERE = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})


class HelmMissing(Missing):
    """A chart is configured, and helm is not installed."""

    reason = "HelmMissing"


class ChartRefused(Invalid):
    """helm does not render a chart."""

    reason = "ChartRefused"


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A chart: a folder or an archive, or a name that helm knows (``oci://…``)."""

    name: str
    chart: str
    namespace: str = "kube-system"
    version: str = ""
    values: Mapping[str, Any] = msgspec.field(default_factory=dict)


def tenant_facts(spec: HostedControlPlaneSpec, url: str) -> dict[str, str]:
    """What values of charts may name."""
    found = urlsplit(url)
    return {
        "API_HOST": found.hostname or "",
        "API_PORT": str(found.port or 443),
        "POD_CIDR": spec.pod_cidr,
        "SERVICE_CIDR": spec.service_cidr,
        "CLUSTER_NAME": spec.key.name,
    }


def fill(value: Any, facts: Mapping[str, str]) -> Any:
    """A value with the facts in its texts; other words with a dollar sign stay."""
    match value:
        case str():
            return Template(value).safe_substitute(facts)
        case dict():
            return {key: fill(each, facts) for key, each in value.items()}
        case list():
            return [fill(each, facts) for each in value]
    return value


async def render(helm: Path, chart: Chart, version: str, facts: Mapping[str, str]) -> list[Json]:
    """The objects of a chart, with its namespace and its CRDs; tests of the chart are left out."""
    words = ["template", chart.name, chart.chart, "--namespace", chart.namespace, "--include-crds"]
    words += ["--skip-tests", "--values", "-", "--kube-version", version]
    words += ["--version", chart.version] if chart.version else []
    text = await _run(helm, words, yaml.safe_dump(fill(dict(chart.values), facts)), chart.name)
    try:
        found = [doc for doc in yaml.load_all(text, yaml.CSafeLoader) if doc]
    except yaml.YAMLError as error:
        raise ChartRefused(f"chart {chart.name}: what helm renders is not YAML") from error
    made = [_placed(doc, chart.namespace) for doc in found]
    if chart.namespace in ALWAYS_THERE:  # the chart must not own them
        return made
    return [make_object("v1", "Namespace", chart.namespace, space=""), *made]


def _placed(doc: Json, namespace: str) -> Json:
    """helm creates objects without a namespace in that of the release."""
    return {**doc, "metadata": {"namespace": namespace, **doc["metadata"]}}


async def _run(helm: Path, words: list[str], values: str, name: str) -> bytes:
    pipe = asyncio.subprocess.PIPE
    try:
        running = await asyncio.create_subprocess_exec(
            str(helm), *words, stdin=pipe, stdout=pipe, stderr=pipe
        )
    except FileNotFoundError as error:
        raise HelmMissing(
            f"chart {name} needs helm: install it on PATH, or render the chart yourself and list "
            "the file under control_planes.addons.manifests"
        ) from error
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            out, problem = await running.communicate(values.encode())
    except TimeoutError as error:
        running.kill()
        await running.wait()
        raise ChartRefused(f"chart {name}: helm did not end within a minute") from error
    if running.returncode:
        raise ChartRefused(f"chart {name}: {problem.decode(errors='replace').strip()[-1500:]}")
    return out
