"""Subresources: eviction, binding and token requests."""

from typing import Any, Protocol

import msgspec

from moxwell.api.kinds import Resource
from moxwell.api.meta import Value
from moxwell.kube import patch
from moxwell.kube.caller import Caller
from moxwell.kube.codec import Codec

PODS = Resource("", "v1", "pods", "Pod")
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")


class _TokenStatus(Value, frozen=True, kw_only=True):
    token: str


class _Token(Value, frozen=True, kw_only=True):
    status: _TokenStatus


_TOKEN = msgspec.json.Decoder(_Token)


class _Asks(Protocol):
    _caller: Caller

    def _codec(self, kind: Any) -> Codec[Any]: ...


class SubresourceClient:
    """Requests to subresources of pods and service accounts."""

    async def evict(
        self: _Asks, name: str, namespace: str, *, uid: str = "", grace: int | None = None
    ) -> None:
        """Evict a pod; raises ``EvictionBlocked`` when a PodDisruptionBudget forbids it."""
        options: dict[str, Any] = {}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        path = PODS.path(namespace, name, "eviction")
        await self._caller.call("POST", path, body=patch.encode(eviction))

    async def bind(self: _Asks, name: str, namespace: str, node: str) -> None:
        """Bind a pod to a node."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = PODS.path(namespace, name, "binding")
        await self._caller.call("POST", path, body=patch.encode(binding))

    async def request_token(
        self: _Asks, account: str, namespace: str, *, seconds: int = 3600, audience: str = ""
    ) -> str:
        """A short-lived service account token; treat it as a secret."""
        spec: dict[str, Any] = {"expirationSeconds": seconds}
        if audience:
            spec["audiences"] = [audience]
        ask = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = ACCOUNTS.path(namespace, account, "token")
        answer = await self._caller.call("POST", path, body=patch.encode(ask))
        return _TOKEN.decode(answer.body).status.token
