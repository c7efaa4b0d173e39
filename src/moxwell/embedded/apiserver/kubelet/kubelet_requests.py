"""All requests that need kubelets: those to pods, and metrics."""

from moxwell.api import requests
from moxwell.embedded.apiserver.auth.rbac import Authorizer
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.kubelet import resource_metrics
from moxwell.embedded.apiserver.kubelet.kubelets import Kubelets
from moxwell.embedded.apiserver.kubelet.pod_requests import PodRequests
from moxwell.embedded.apiserver.kubelet.resource_metrics import ResourceMetrics
from moxwell.embedded.apiserver.request_info import ApiCall


class KubeletRequests:
    """Handles the requests that an API server with kubelets serves besides."""

    def __init__(self, core: ServerContext, authorizer: Authorizer, kubelets: Kubelets) -> None:
        core.registry.put(resource_metrics.metrics_resources())
        self._pods = PodRequests(core, authorizer, kubelets)
        self._metrics = ResourceMetrics(core, kubelets)

    def serves(self, call: ApiCall) -> bool:
        return call.resource.group == resource_metrics.GROUP or self._pods.serves(call)

    async def handle(self, call: ApiCall) -> requests.Response:
        if call.resource.group == resource_metrics.GROUP:
            return await self._metrics.handle(call)
        return await self._pods.handle(call)
