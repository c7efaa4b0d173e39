"""
RBAC authorizer, evaluated from the stored roles and bindings.

``system:masters`` may do everything; kubelets what the Node authorizer allows; other users what a
rule of a bound role allows. Bindings are indexed by subject until a role or binding changes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from moxwell.api import requests
from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.auth.decisions import ALLOWED, Decision
from moxwell.embedded.apiserver.auth.node_authorizer import NodeAuthorizer
from moxwell.embedded.apiserver.auth.policy_rules import (
    AuthorizationAttributes,
    PolicyRule,
    rule_allows,
)
from moxwell.embedded.apiserver.object_cache import ObjectCache, StoredChange
from moxwell.embedded.apiserver.pdb import selector_of
from moxwell.embedded.apiserver.request_info import ADMIN, ApiCall

Object = dict[str, Any]
GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"
_GROUP_RESOURCES = tuple(
    f"{name}.{GROUP}" for name in ("clusterroles", "roles", "clusterrolebindings", "rolebindings")
)


class RoleNotFound(LookupError):
    """A role that a binding names does not exist."""

    def __init__(self, kind: str, name: str) -> None:
        self.name = name
        super().__init__(f'{kind.lower()}.{GROUP} "{name}" not found')


@dataclass(frozen=True, slots=True)
class BoundRole:
    """The rules that one binding gives to one subject; ``error`` if the role is missing."""

    rules: tuple[PolicyRule, ...]
    description: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class BindingIndex:
    """Bound roles by namespace (empty: cluster-wide) and by kind and name of the subject."""

    bound: dict[tuple[str, str, str], list[BoundRole]] = field(default_factory=dict)

    def add(self, namespace: str, subject: Object, role: BoundRole) -> None:
        key = (namespace, *_subject_key(subject, namespace))
        self.bound.setdefault(key, []).append(role)

    def of(self, user: requests.UserInfo, namespace: str) -> Iterator[BoundRole]:
        """Yield the roles of a user, cluster-wide ones first."""
        keys = [("User", user.name), *(("Group", group) for group in dict.fromkeys(user.groups))]
        for where in ("", namespace) if namespace else ("",):
            for key in keys:
                yield from self.bound.get((where, *key), ())


class Authorizer:
    """Authorizes requests."""

    def __init__(self, cache: ObjectCache) -> None:
        self._cache = cache
        self._nodes = NodeAuthorizer(cache)
        self._cached: BindingIndex | None = None

    def on_change(self, change: StoredChange) -> None:
        self._nodes.on_change(change)
        if change.record.group_resource in _GROUP_RESOURCES:
            self._cached = None

    # roles and bindings

    def _bindings(self) -> BindingIndex:
        if self._cached is None:
            found = BindingIndex()
            for kind, group_resource in zip(
                ("ClusterRoleBinding", "RoleBinding"), _GROUP_RESOURCES[2:], strict=True
            ):
                for record in self._cache.table(group_resource).scan():
                    self._index(found, kind, record.object(), record.namespace)
            self._cached = found
        return self._cached

    def _index(self, index: BindingIndex, kind: str, binding: Object, namespace: str) -> None:
        ref, error = binding.get("roleRef") or {}, ""
        rules: tuple[PolicyRule, ...] = ()
        try:
            rules = tuple(self.rules_of_role(ref, namespace))
        except RoleNotFound as missing:
            error = str(missing)
        for subject in binding.get("subjects") or ():
            shown = _describe(kind, binding, ref, subject)
            index.add(namespace, subject, BoundRole(rules, shown, error))

    def rules_of_role(self, ref: Object, namespace: str) -> list[PolicyRule]:
        """The rules of a referenced role; RoleNotFound if it does not exist."""
        kind, name = ref.get("kind", ""), ref.get("name", "")
        if kind == "ClusterRole":
            record = self._cache.find(_GROUP_RESOURCES[0], name)
        else:
            record = self._cache.find(_GROUP_RESOURCES[1], f"{namespace}/{name}")
        if record is None:
            raise RoleNotFound(kind, name)
        role = record.object()
        if role.get("aggregationRule"):
            return self._aggregated(role, {name})
        return list(role.get("rules") or ())

    def _aggregated(self, role: Object, visited: set[str]) -> list[PolicyRule]:
        """The rules of all selected roles; a cycle of selectors adds each role once."""
        selectors = role["aggregationRule"].get("clusterRoleSelectors") or ()
        wanted = [selector_of(selector) for selector in selectors]
        found: list[PolicyRule] = []
        for record in self._cache.table(_GROUP_RESOURCES[0]).scan():
            chosen = any(selector.matches(record.labels) for selector in wanted)
            if not chosen or record.name in visited:
                continue
            visited.add(record.name)
            other = record.object()
            nested = other.get("aggregationRule")
            found += self._aggregated(other, visited) if nested else other.get("rules") or ()
        return found

    def rules_of(self, user: requests.UserInfo, namespace: str) -> Iterator[PolicyRule]:
        """Yield the rules of a user in a namespace and cluster-wide."""
        for role in self._bindings().of(user, namespace):
            yield from role.rules

    def resolution_errors(self, user: requests.UserInfo, namespace: str) -> list[str]:
        """The missing roles that bindings of the user name."""
        found = (role.error for role in self._bindings().of(user, namespace))
        return list(dict.fromkeys(error for error in found if error))

    # decisions

    def decide(self, user: requests.UserInfo, attributes: AuthorizationAttributes) -> Decision:
        """Decide by group, by the Node authorizer, then by RBAC."""
        if MASTERS in user.groups:
            return ALLOWED
        by_node = self._nodes.decide(user, attributes)
        if by_node.allowed:
            return by_node
        for role in self._bindings().of(user, attributes.namespace):
            if any(rule_allows(rule, attributes) for rule in role.rules):
                return Decision(True, f"RBAC: allowed by {role.description}")
        errors = self.resolution_errors(user, attributes.namespace)
        by_rbac = f"RBAC: {aggregate(errors)}" if errors else ""
        return Decision(False, "\n".join(filter(None, (by_node.reason, by_rbac))))

    def is_allowed(self, user: requests.UserInfo, attributes: AuthorizationAttributes) -> bool:
        return self.decide(user, attributes).allowed

    def authorize(self, call: ApiCall) -> Decision:
        """Raise 403 unless the caller is allowed."""
        if call.user is ADMIN:
            return ALLOWED
        attributes = call_attributes(call)
        decision = self.decide(call.user, attributes)
        if not decision.allowed:
            raise denied(call.user, attributes, decision.reason)
        return decision

    def authorize_path(self, request: requests.Request) -> Decision:
        user = request.user
        if user is None or MASTERS in user.groups:
            return ALLOWED
        attributes = AuthorizationAttributes(request.method.lower(), path=request.path)
        decision = self.decide(user, attributes)
        if not decision.allowed:
            reason = f": {decision.reason}" if decision.reason else ""
            raise status_errors.forbidden_path(
                f'User "{user.name}" cannot {attributes.verb} path "{attributes.path}"{reason}'
            )
        return decision


def call_attributes(call: ApiCall) -> AuthorizationAttributes:
    """The attributes of a call; a list of one name is authorized by that name."""
    resource = call.resource
    namespace = call.namespace if resource.namespaced or resource.plural == "namespaces" else ""
    name, node = call.name, ""
    if not name and call.verb in ("list", "watch", "deletecollection"):
        selected = dict(_equalities(call.query.get("fieldSelector", "")))
        name, node = selected.get("metadata.name", ""), selected.get("spec.nodeName", "")
    return AuthorizationAttributes(
        call.verb,
        resource.group,
        resource.plural,
        call.subresource,
        name,
        namespace,
        node_selector=node,
    )


def _equalities(selector: str) -> Iterator[tuple[str, str]]:
    """Yield the field and value of each equality of a field selector."""
    for term in selector.split(","):
        field_name, operator, value = term.partition("=")
        if operator and not field_name.endswith("!"):
            yield field_name.strip(), value.removeprefix("=").strip()


def denied(
    user: requests.UserInfo, attributes: AuthorizationAttributes, reason: str = ""
) -> status_errors.StatusError:
    """The error of a request that is not allowed."""
    where = (
        f'in the namespace "{attributes.namespace}"'
        if attributes.namespace
        else "at the cluster scope"
    )
    text = (
        f'User "{user.name}" cannot {attributes.verb} resource "{attributes.full}"'
        f' in API group "{attributes.group}" {where}'
    )
    if reason:
        text = f"{text}: {reason}"
    return status_errors.forbidden(attributes.resource, attributes.group, attributes.name, text)


def aggregate(errors: list[str]) -> str:
    """Errors as Go prints an aggregate."""
    return errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"


def _subject_key(subject: Object, namespace: str) -> tuple[str, str]:
    kind, name = str(subject.get("kind")), str(subject.get("name"))
    if kind != "ServiceAccount":
        return kind, name
    where = subject.get("namespace") or namespace
    return ("User", f"system:serviceaccount:{where}:{name}") if where else ("", "")


def _describe(kind: str, binding: Object, ref: Object, subject: Object) -> str:
    meta = binding["metadata"]
    name = f"{meta['name']}/{meta['namespace']}" if meta.get("namespace") else meta["name"]
    who = subject.get("name", "")
    if subject.get("kind") == "ServiceAccount":
        who = f"{who}/{subject.get('namespace') or meta.get('namespace', '')}"
    return (
        f'{kind} "{name}" of {ref.get("kind")} "{ref.get("name")}" to {subject.get("kind")} "{who}"'
    )
