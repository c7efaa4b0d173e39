"""
Handles ``log``, ``exec``, ``attach`` and ``portforward`` of Pods: authorizes and finds the kubelet.

exec and port forwarding are answered with a :class:`PodConnection`, which the HTTP server upgrades;
a request in the same process gets it as it is. As in Kubernetes 1.36 a GET, which WebSocket needs,
is authorized as ``create`` too.
"""

from dataclasses import replace

from moxwell.api import requests
from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.auth.rbac import Authorizer
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.kubelet.kubelets import Kubelets
from moxwell.embedded.apiserver.kubelet.pod_target import PodConnection, choose_target
from moxwell.embedded.apiserver.object_cache import key_of
from moxwell.embedded.apiserver.request_info import ApiCall

STREAMED = ("exec", "portforward")
SERVED = ("log", "attach", *STREAMED)
MAX_COMMAND = 64 * 1024
NO_ATTACH = "attach is not supported by the embedded API server: use kubectl logs or kubectl exec"


class PodRequests:
    """Passes requests to pods on to the kubelets of their nodes."""

    def __init__(self, core: ServerContext, authorizer: Authorizer, kubelets: Kubelets) -> None:
        self._core, self._authorizer, self.kubelets = core, authorizer, kubelets

    def serves(self, call: ApiCall) -> bool:
        """Whether a call is one of these requests."""
        return (
            call.resource.kind == "Pod" and not call.resource.group and call.subresource in SERVED
        )

    async def handle(self, call: ApiCall) -> requests.Response:
        if call.subresource == "log":
            return await self._log(call)
        if call.verb not in ("get", "create"):
            raise status_errors.method_not_allowed()
        if call.verb == "get":
            self._authorizer.authorize(replace(call, verb="create"))
        pod = self._pod(call)
        if call.subresource == "attach":
            raise status_errors.bad_request(NO_ATTACH)
        is_exec = call.subresource == "exec"
        target = choose_target(pod, call.query.get("container", ""), container=is_exec)
        if not target.node:
            raise status_errors.bad_request(f"pod {call.name} does not have a host assigned")
        if is_exec and "command" not in call.query:
            raise status_errors.bad_request("you must specify at least 1 command for the container")
        if sum(len(value) for _, value in call.request.query) > MAX_COMMAND:
            raise status_errors.bad_request("the command is too long")
        connection = PodConnection(call.subresource, target, call.request.query)
        return requests.Response(status=101, upgrade=connection)

    async def _log(self, call: ApiCall) -> requests.Response:
        if call.verb != "get":
            raise status_errors.method_not_allowed()
        target = choose_target(self._pod(call), call.query.get("container", ""), container=True)
        headers = {"content-type": "text/plain"}
        if not target.node:
            return requests.Response(status=200, headers=headers)
        chunks = await self.kubelets.logs(target, call.request.query)
        return requests.Response(status=200, headers=headers, chunks=chunks)

    def _pod(self, call: ApiCall) -> dict[str, object]:
        record = self._core.cache.find(
            call.resource.group_resource, key_of(call.namespace, call.name)
        )
        if record is None:
            raise status_errors.not_found(call.resource.plural, call.resource.group, call.name)
        return self._core.decode(call.resource, record)
