"""
``karpenter.join``: approves the kubelet certificates of nodes that the autoscaler makes.

Their join tokens are each bound to the name of one node. A request for another name, or with a
token that was revoked, is denied. Requests of other tokens are left to Kubernetes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from moxwell.api.core.resources import Secret
from moxwell.api.kinds import Resource
from moxwell.bootstrap import join_tokens
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.pki import kubelet_requests
from moxwell.runtime.move import Done
from moxwell.runtime.reconciler import Reconciler
from moxwell.runtime.writes import Merge, Writes

NAME = "karpenter.join"
REQUESTS = Resource(
    "certificates.k8s.io",
    "v1",
    "certificatesigningrequests",
    "CertificateSigningRequest",
    namespaced=False,
)
Json = dict[str, Any]


class JoinReason(StrEnum):
    """Reasons of the Approved and Denied conditions."""

    APPROVED = "NodeOfToken"
    DENIED = "NotNodeOfToken"


@dataclass(frozen=True, slots=True)
class BoundToken:
    """The token of a request; ``node`` is empty if it does not exist or names no node."""

    node: str = ""


def next_move(request: Mapping[str, Any], token: BoundToken) -> Writes | Done:
    """Decide on a request with a bound token."""
    if not is_ours(request):
        return Done()
    spec = request["spec"]
    why_not = kubelet_requests.denial(spec)
    asked = kubelet_requests.node_name(spec)
    if not why_not and not token.node:
        why_not = "the join token was revoked or names no node"
    elif not why_not and asked != token.node:
        why_not = f"the join token is for the node {token.node}, not for {asked}"
    reason = JoinReason.DENIED if why_not else JoinReason.APPROVED
    change = kubelet_requests.decision(request, why_not, reason)
    return Writes((Merge(REQUESTS, request["metadata"]["name"], change, subresource="approval"),))


def is_ours(request: Mapping[str, Any]) -> bool:
    """Whether a request is undecided and came with a token that is bound to a node."""
    return kubelet_requests.is_undecided(request) and join_tokens.is_bound(request["spec"])


class JoinApprover(Reconciler[Json, BoundToken, Writes | Done, None]):
    """Decides on the requests of one scaled cluster."""

    kind = REQUESTS

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def see(self, request: Json, reader: Reader) -> BoundToken:
        if not is_ours(request):
            return BoundToken()
        name = join_tokens.secret_name(request["spec"].get("username", ""))
        token = await reader.find(Secret, name, join_tokens.NAMESPACE)
        annotations = token.metadata.annotations if token else {}
        return BoundToken(annotations.get(join_tokens.NODE_NAME, ""))

    def plan(self, request: Json, seen: BoundToken) -> Writes | Done:
        return next_move(request, seen)

    async def act(self, move: Writes | Done) -> Any:
        return await move.perform(self._kube, self.kind) if isinstance(move, Writes) else None

    def describe(self, request: Json, seen: BoundToken, move: Writes | Done) -> None:
        return None
