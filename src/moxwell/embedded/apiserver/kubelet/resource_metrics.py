"""
Serves ``metrics.k8s.io/v1beta1``, as metrics-server does for kube-apiserver: what nodes and pods
use, asked of the kubelets at each request.
"""

from typing import Any

from moxwell.api import requests
from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.kubelet.kubelets import Kubelets
from moxwell.embedded.apiserver.merge_schema import MergeSchema
from moxwell.embedded.apiserver.object_cache import ObjectRecord, encode
from moxwell.embedded.apiserver.reader import matcher
from moxwell.embedded.apiserver.request_info import ApiCall
from moxwell.embedded.apiserver.resources import ServedResource
from moxwell.embedded.apiserver.status_errors import ErrorCause

GROUP, VERSION, WINDOW = "metrics.k8s.io", "v1beta1", "15s"
Json = dict[str, Any]


class MetricsModel:
    """The resource model of kinds that are computed and never stored."""

    selectable: frozenset[str] = frozenset()
    has_generation = False

    @property
    def merge_schema(self) -> MergeSchema:
        return MergeSchema("map", unknown=True)

    def decode(self, obj: Json, unknown: list[str] | None) -> Json:
        return obj

    def default(self, obj: Json) -> None:
        return None

    def prepare(self, new: Json, old: Json | None, subresource: str) -> None:
        return None

    def validate(self, new: Json, old: Json | None, subresource: str) -> list[ErrorCause]:
        return []

    def field_value(self, obj: Json, path: str) -> str:
        return ""


def metrics_resources() -> list[ServedResource]:
    """NodeMetrics and PodMetrics."""
    return [
        ServedResource(
            group=GROUP,
            version=VERSION,
            kind=kind,
            plural=plural,
            singular="",
            namespaced=namespaced,
            group_resource=f"{plural}.{GROUP}",
            hub=f"{GROUP}/{VERSION}",
            model=MetricsModel(),
            verbs=("get", "list"),
        )
        for kind, plural, namespaced in (
            ("NodeMetrics", "nodes", False),
            ("PodMetrics", "pods", True),
        )
    ]


class ResourceMetrics:
    """Handles requests for metrics."""

    def __init__(self, core: ServerContext, kubelets: Kubelets) -> None:
        self._core, self._kubelets = core, kubelets

    async def handle(self, call: ApiCall) -> requests.Response:
        if call.subresource or call.verb not in ("get", "list"):
            raise status_errors.method_not_allowed()
        matches = matcher(call)
        records = [r for r in self._core.cache.table(call.resource.plural).scan() if matches(r)]
        found = await self._kubelets.usage()
        items = [m for r in records if (m := _metrics(call.resource, r, found)) is not None]
        if call.verb == "get":
            if not items:
                raise status_errors.not_found(call.resource.plural, GROUP, call.name)
            return _json(items[0])
        api_version, kind = call.resource.api_version, call.resource.lists
        meta = {"resourceVersion": ""}
        return _json({"kind": kind, "apiVersion": api_version, "metadata": meta, "items": items})


def _metrics(resource: ServedResource, record: ObjectRecord, found: Any) -> Json | None:
    """The metrics of a node or a pod; None while its kubelet measures nothing."""
    obj: Json = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {"name": record.name, "creationTimestamp": found["timestamp"]},
        "timestamp": found["timestamp"],
        "window": WINDOW,
    }
    if record.labels:
        obj["metadata"]["labels"] = dict(record.labels)
    if resource.kind == "NodeMetrics":
        node = found["nodes"].get(record.name)
        return {**obj, "usage": node["usage"]} if node else None
    obj["metadata"]["namespace"] = record.namespace
    rows = [pod for node in found["nodes"].values() for pod in node["pods"]]
    own = [p for p in rows if (p["namespace"], p["name"]) == (record.namespace, record.name)]
    return {**obj, "containers": own[0]["containers"]} if own else None


def _json(value: Json) -> requests.Response:
    headers = {"content-type": "application/json"}
    return requests.Response(status=200, headers=headers, body=encode(value) + b"\n")
