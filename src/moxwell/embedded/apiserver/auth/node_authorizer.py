"""
The Node authorizer: what a kubelet may do.

A user ``system:node:NAME`` of the group ``system:nodes`` is the kubelet of the node NAME. It reads
the objects that pods bound to its node refer to, and its own Node, Lease and CSINode; it creates
tokens for the service accounts of these pods. The rest is the same for all nodes. Which of its own
writes are allowed is decided by :mod:`moxwell.embedded.apiserver.auth.node_restriction`.
"""

from collections.abc import Iterator
from typing import Any

from moxwell.api.requests import UserInfo
from moxwell.embedded.apiserver.auth.bootstrap import node_rules
from moxwell.embedded.apiserver.auth.decisions import ALLOWED, NO_OPINION, Decision
from moxwell.embedded.apiserver.auth.node_graph import NodeGraph
from moxwell.embedded.apiserver.auth.policy_rules import AuthorizationAttributes, rule_allows
from moxwell.embedded.apiserver.object_cache import ObjectCache, StoredChange

NODES, PREFIX = "system:nodes", "system:node:"
LEASES = "kube-node-lease"
_PODS, _VOLUMES, _ATTACHMENTS = "pods", "persistentvolumes", "volumeattachments.storage.k8s.io"
_READ, _OWN_WRITES = ("get", "list", "watch"), ("get", "create", "update", "patch", "delete")
_ALL_OWN = "get, create, update, patch, or delete"


def node_identity(user: UserInfo) -> tuple[bool, str]:
    """Whether the user is a kubelet, and the name of its node (empty if it has none)."""
    if NODES not in user.groups or not user.name.startswith(PREFIX):
        return False, ""
    return True, user.name.removeprefix(PREFIX)


class NodeAuthorizer:
    """Authorizes kubelets from a graph of the stored pods and volumes."""

    def __init__(self, cache: ObjectCache) -> None:
        self._cache = cache
        self._built: NodeGraph | None = None
        self._rules = tuple(node_rules())

    # the graph

    def on_change(self, change: StoredChange) -> None:
        """Update the graph; it is built when the first kubelet asks."""
        graph, record = self._built, change.record
        if graph is None:
            return
        if record.group_resource == _PODS:
            self._on_pod(graph, change)
        elif record.group_resource == _VOLUMES:
            if change.deleted:
                graph.drop_volume(record.name)
            else:
                graph.put_volume(record.name, record.object())
        elif record.group_resource == _ATTACHMENTS:
            if change.deleted:
                graph.drop_attachment(record.name)
            else:
                graph.put_attachment(record.name, record.object())

    @staticmethod
    def _on_pod(graph: NodeGraph, change: StoredChange) -> None:
        record = change.record
        if change.deleted:
            graph.drop_pod(record.key)
        elif b'"nodeName"' in record.body and not graph.has_pod(record.key, record.uid):
            graph.put_pod(record.key, record.object())

    def _graph(self) -> NodeGraph:
        if self._built is None:
            self._built = NodeGraph()
            self._built.load(self._all(_PODS), self._all(_VOLUMES), self._all(_ATTACHMENTS))
        return self._built

    def _all(self, group_resource: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for record in self._cache.table(group_resource).scan():
            yield record.key, record.object()

    # decisions

    def decide(self, user: UserInfo, attributes: AuthorizationAttributes) -> Decision:
        """Decide; no opinion about users that are not kubelets."""
        is_node, node = node_identity(user)
        if not is_node:
            return NO_OPINION
        if not node:
            return Decision(False, f'unknown node for user "{user.name}"')
        if attributes.path is None:
            decision = self._by_resource(node, attributes)
            if decision is not None:
                return decision
        allowed = any(rule_allows(rule, attributes) for rule in self._rules)
        return ALLOWED if allowed else NO_OPINION

    def _by_resource(self, node: str, asked: AuthorizationAttributes) -> Decision | None:
        """The decision about a resource that is not the same for all nodes."""
        match asked.group, asked.resource:
            case "", "secrets" | "configmaps":
                return self._read_related(node, asked)
            case "", "persistentvolumeclaims" if asked.subresource == "status":
                if asked.verb not in ("update", "patch"):
                    return Decision(False, "can only get/update/patch this type")
                return self._related(node, asked)
            case "", "persistentvolumeclaims" | "persistentvolumes":
                return self._get_related(node, asked)
            case "storage.k8s.io", "volumeattachments":
                return self._get_related(node, asked)
            case "", "serviceaccounts":
                return self._service_account(node, asked)
            case "coordination.k8s.io", "leases":
                return _lease(node, asked)
            case "storage.k8s.io", "csinodes":
                return _csi_node(node, asked)
            case "", "nodes":
                return _node(node, asked)
            case "", "pods":
                return self._pod(node, asked)
        return None

    def _related(self, node: str, asked: AuthorizationAttributes) -> Decision:
        if not asked.name:
            return Decision(False, "No Object name found")
        if self._graph().is_related(node, asked.resource, asked.namespace, asked.name):
            return ALLOWED
        return Decision(False, f"no relationship found between node '{node}' and this object")

    def _get_related(self, node: str, asked: AuthorizationAttributes) -> Decision:
        if asked.verb != "get":
            return Decision(False, "can only get individual resources of this type")
        if asked.subresource:
            return Decision(False, "cannot get subresource")
        return self._related(node, asked)

    def _read_related(self, node: str, asked: AuthorizationAttributes) -> Decision:
        if asked.verb not in _READ:
            return Decision(False, "can only read resources of this type")
        if asked.subresource:
            return Decision(False, "cannot read subresource")
        if not asked.namespace:
            return Decision(False, "can only read namespaced object of this type")
        return self._related(node, asked)

    def _service_account(self, node: str, asked: AuthorizationAttributes) -> Decision:
        if asked.verb == "get" and not asked.subresource:
            return self._read_related(node, asked)
        if asked.verb != "create" or not asked.name:
            return Decision(False, "can only create tokens for individual service accounts")
        if asked.subresource != "token":
            return Decision(False, "can only create token subresource of serviceaccount")
        return self._related(node, asked)

    def _pod(self, node: str, asked: AuthorizationAttributes) -> Decision:
        match asked.subresource, asked.verb:
            case "", "get":
                return self._related(node, asked)
            case "", "list" | "watch":
                if asked.node_selector == node:
                    return ALLOWED
                if asked.name:
                    return self._related(node, asked)
                return Decision(False, "can only list/watch pods with spec.nodeName field selector")
            case ("", "create" | "delete") | ("status", "update" | "patch"):
                return ALLOWED
            case "eviction", "create":
                return ALLOWED
        return NO_OPINION


def _lease(node: str, asked: AuthorizationAttributes) -> Decision:
    if asked.verb not in _OWN_WRITES:
        return Decision(False, f"can only {_ALL_OWN} a node lease")
    if asked.namespace != LEASES:
        return Decision(False, f'can only access leases in the "{LEASES}" system namespace')
    if asked.verb != "create" and asked.name != node:
        return Decision(
            False, "can only access node lease with the same name as the requesting node"
        )
    return ALLOWED


def _csi_node(node: str, asked: AuthorizationAttributes) -> Decision:
    if asked.verb not in _OWN_WRITES:
        return Decision(False, f"can only {_ALL_OWN} a CSINode")
    if asked.subresource:
        return Decision(False, "cannot authorize CSINode subresources")
    if asked.verb != "create" and asked.name != node:
        return Decision(False, "can only access CSINode with the same name as the requesting node")
    return ALLOWED


def _node(node: str, asked: AuthorizationAttributes) -> Decision:
    match asked.subresource, asked.verb:
        case "", "create" | "update" | "patch":
            return ALLOWED
        case "", "get" | "list" | "watch":
            if asked.name == node:
                return ALLOWED
            what = f"'{asked.name}'" if asked.name else "all nodes"
            return Decision(False, f"node '{node}' cannot read {what}, only its own Node object")
        case "status", "update" | "patch":
            return ALLOWED
    return NO_OPINION
