"""The EndpointSlice controller: lists the addresses of the pods behind each Service."""

from collections.abc import Mapping, Sequence
from typing import Any

from moxwell.embedded.controllermanager.endpointslice.plan import (
    MANAGED_BY,
    SERVICE_NAME,
    ServicePods,
    next_move,
)
from moxwell.embedded.controllermanager.resources import ENDPOINT_SLICES, PODS, SERVICES
from moxwell.embedded.controllermanager.workloads import owner_key
from moxwell.embedded.writing import WriteMove, WritingReconciler
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.cache import Cache
from moxwell.runtime.key import Key
from moxwell.runtime.objects import key_of
from moxwell.runtime.watches import Watch

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"


class EndpointSliceController(WritingReconciler[Json, ServicePods, None]):
    """Reconciles Services; sees their pods and slices; writes no status."""

    kind = SERVICES

    def __init__(
        self, kube: Kube, services: Cache[Any], pods: Cache[Any], nodes: Cache[Any]
    ) -> None:
        super().__init__(kube)
        self._services, self._pods, self._nodes = services, pods, nodes
        self.watches: Sequence[Watch] = (
            Watch(PODS, self._in_namespace),
            Watch(ENDPOINT_SLICES, owner_key("Service")),
        )

    def _in_namespace(self, pod: Json) -> list[Key]:
        """Every Service of the namespace: a changed label may take a pod away from one."""
        namespace = pod["metadata"].get("namespace", "")
        return [key_of(service) for service in self._services.list(namespace)]

    async def see(self, service: Json, reader: Reader) -> ServicePods:
        meta, wanted = service["metadata"], service["spec"].get("selector") or {}
        own = {SERVICE_NAME: meta["name"]}
        page = await reader.list(ENDPOINT_SLICES, meta["namespace"], labels=own)
        pods = tuple(p for p in self._pods.list(meta["namespace"]) if selects(wanted, p))
        return ServicePods(
            pods=pods if wanted else (),
            slices=tuple(s for s in page.items if MANAGED_BY in s["metadata"]["labels"]),
            zones={n: self._zone(n) for n in {p["spec"].get("nodeName", "") for p in pods}},
        )

    def _zone(self, node: str) -> str:
        found = self._nodes.find(Key("", node))
        return str((found or {}).get("metadata", {}).get("labels", {}).get(ZONE, ""))

    def plan(self, service: Json, seen: ServicePods) -> WriteMove:
        return next_move(service, seen)

    def describe(self, service: Json, seen: ServicePods, move: WriteMove) -> None:
        return None


def selects(selector: Mapping[str, str], pod: Json) -> bool:
    """Whether a Service with this selector sends to a pod."""
    labels = pod["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in selector.items())
