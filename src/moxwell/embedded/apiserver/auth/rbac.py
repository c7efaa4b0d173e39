"""
RBAC authorizer, evaluated from the stored roles and bindings.

``system:masters`` may do everything; other users what a rule of a bound role allows. Writers of
roles and bindings need the permissions they grant (escalation check). Compiled bindings are cached
until a role or binding changes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from moxwell.api import requests
from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.object_cache import ObjectCache, StoredChange
from moxwell.embedded.apiserver.pdb import selector_of
from moxwell.embedded.apiserver.request_info import ADMIN, ApiCall

Object = dict[str, Any]
GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"
_GROUP_RESOURCES = tuple(
    f"{name}.{GROUP}" for name in ("clusterroles", "roles", "clusterrolebindings", "rolebindings")
)


@dataclass(frozen=True, slots=True)
class AuthorizationAttributes:
    """The attributes of an authorization decision; with ``path`` it is a non-resource request."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""

    @property
    def full(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def rule_allows(rule: Mapping[str, Any], attributes: AuthorizationAttributes) -> bool:
    """Report whether the rule allows the request."""
    verbs = rule.get("verbs") or ()
    if attributes.verb not in verbs and "*" not in verbs:
        return False
    if attributes.path:
        return any(
            _covers(pattern, attributes.path) for pattern in rule.get("nonResourceURLs") or ()
        )
    groups, names = rule.get("apiGroups") or (), rule.get("resourceNames") or ()
    if attributes.group not in groups and "*" not in groups:
        return False
    if names and attributes.name not in names:
        return False
    return any(_is_resource(known, attributes) for known in rule.get("resources") or ())


def _is_resource(known: str, attributes: AuthorizationAttributes) -> bool:
    return known in ("*", attributes.full) or bool(
        attributes.subresource and known == f"*/{attributes.subresource}"
    )


def _covers(pattern: str, path: str) -> bool:
    if pattern == "*":
        return True
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


class Authorizer:
    """Authorizes requests."""

    def __init__(self, cache: ObjectCache) -> None:
        self._cache = cache
        self._cached: dict[str, list[tuple[Object, str, list[Object]]]] | None = None

    def on_change(self, change: StoredChange) -> None:
        if change.record.group_resource in _GROUP_RESOURCES:
            self._cached = None

    # bindings

    def _bindings(self) -> dict[str, list[tuple[Object, str, list[Object]]]]:
        """
        List (namespace, subject, subject namespace, rules); an empty namespace means cluster-wide.
        """
        if self._cached is None:
            found: dict[str, list[tuple[Object, str, list[Object]]]] = {}
            for group_resource in _GROUP_RESOURCES[2:]:
                for record in self._cache.table(group_resource).scan():
                    binding = record.object()
                    rules = self._rules(binding.get("roleRef") or {}, record.namespace)
                    for subject in binding.get("subjects") or ():
                        where = found.setdefault(record.namespace, [])
                        where.append((subject, subject.get("namespace", ""), rules))
            self._cached = found
        return self._cached

    def _rules(self, ref: Object, namespace: str) -> list[Object]:
        if ref.get("kind") == "ClusterRole":
            record = self._cache.find(_GROUP_RESOURCES[0], ref.get("name", ""))
        else:
            record = self._cache.find(_GROUP_RESOURCES[1], f"{namespace}/{ref.get('name', '')}")
        if record is None:
            return []
        role = record.object()
        if "aggregationRule" in role:
            return self._aggregated(role["aggregationRule"])
        return role.get("rules") or []

    def _aggregated(self, rule: Object) -> list[Object]:
        wanted = [selector_of(s) for s in rule.get("clusterRoleSelectors") or ()]
        found: list[Object] = []
        for record in self._cache.table(_GROUP_RESOURCES[0]).scan():
            if any(selector.matches(record.labels) for selector in wanted):
                role = record.object()
                nested = role.get("aggregationRule")
                found += (
                    self._aggregated(nested)
                    if nested and nested != rule
                    else role.get("rules") or []
                )
        return found

    def rules_of(self, user: requests.UserInfo, namespace: str) -> Iterator[Object]:
        """Yield the rules of a user in a namespace and cluster-wide."""
        bound = self._bindings()
        for where in {"", namespace}:
            for subject, subject_namespace, rules in bound.get(where, ()):
                if _is_subject(subject, subject_namespace or where, user):
                    yield from rules

    def is_allowed(self, user: requests.UserInfo, attributes: AuthorizationAttributes) -> bool:
        if MASTERS in user.groups:
            return True
        return any(
            rule_allows(rule, attributes) for rule in self.rules_of(user, attributes.namespace)
        )

    # decisions

    def authorize(self, call: ApiCall) -> None:
        """Raise 403 unless the caller is allowed."""
        if call.user is ADMIN:
            return
        resource = call.resource
        namespace = call.namespace if resource.namespaced or resource.plural == "namespaces" else ""
        attributes = AuthorizationAttributes(
            call.verb, resource.group, resource.plural, call.subresource, call.name, namespace
        )
        if not self.is_allowed(call.user, attributes):
            raise status_errors.forbidden(
                resource.plural, resource.group, call.name, _denied_message(call.user, attributes)
            )

    def authorize_path(self, request: requests.Request) -> None:
        user = request.user
        if user is None or MASTERS in user.groups:
            return
        attributes = AuthorizationAttributes(request.method.lower(), path=request.path)
        if not self.is_allowed(user, attributes):
            raise status_errors.forbidden_path(
                f'User "{user.name}" cannot {attributes.verb} path "{attributes.path}"'
            )

    def check_escalation(self, call: ApiCall, obj: Object) -> None:
        """Raise 403 if a role or binding grants permissions that its writer lacks."""
        resource, user = call.resource, call.user
        if resource.group != GROUP or MASTERS in user.groups:
            return
        namespace = call.namespace
        if resource.kind in ("Role", "ClusterRole"):
            verb, rules = "escalate", obj.get("rules") or []
        else:
            verb, rules = "bind", self._rules(obj.get("roleRef") or {}, namespace)
        role = "clusterroles" if resource.kind.startswith("Cluster") else "roles"
        if verb == "bind":
            role = (
                "clusterroles"
                if (obj.get("roleRef") or {}).get("kind") == "ClusterRole"
                else "roles"
            )
        name = (
            obj["metadata"].get("name", "")
            if verb == "escalate"
            else obj["roleRef"].get("name", "")
        )
        if self.is_allowed(user, AuthorizationAttributes(verb, GROUP, role, "", name, namespace)):
            return
        missing = [rule for rule in rules if not self._covers_rule(user, rule, namespace)]
        if missing:
            listed = "\n".join(_format_rule(rule) for rule in missing)
            groups = " ".join(f'"{g}"' for g in user.groups)
            why = (
                f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC'
                " permissions not"
                f" currently held:\n{listed}"
            )
            raise status_errors.forbidden(
                resource.plural, resource.group, obj["metadata"].get("name", ""), why
            )

    def _covers_rule(self, user: requests.UserInfo, rule: Object, namespace: str) -> bool:
        mine = list(self.rules_of(user, namespace))
        return all(
            any(rule_allows(held, attributes) for held in mine)
            for attributes in _rule_attributes(rule, namespace)
        )


def _rule_attributes(rule: Object, namespace: str) -> Iterator[AuthorizationAttributes]:
    """Yield everything a rule allows, one by one."""
    for verb in rule.get("verbs") or ():
        for path in rule.get("nonResourceURLs") or ():
            yield AuthorizationAttributes(verb, path=path)
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                plain, _, subresource = resource.partition("/")
                for name in rule.get("resourceNames") or ("",):
                    yield AuthorizationAttributes(verb, group, plain, subresource, name, namespace)


def _is_subject(subject: Object, namespace: str, user: requests.UserInfo) -> bool:
    match subject.get("kind"):
        case "User":
            return bool(subject.get("name") == user.name)
        case "Group":
            return subject.get("name") in user.groups
        case "ServiceAccount":
            return user.name == f"system:serviceaccount:{namespace}:{subject.get('name')}"
    return False


def _denied_message(user: requests.UserInfo, attributes: AuthorizationAttributes) -> str:
    where = (
        f'in the namespace "{attributes.namespace}"'
        if attributes.namespace
        else "at the cluster scope"
    )
    return (
        f'User "{user.name}" cannot {attributes.verb} resource "{attributes.full}"'
        f' in API group "{attributes.group}" {where}'
    )


def _format_rule(rule: Object) -> str:
    names = (
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("ResourceNames", "resourceNames"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("Verbs", "verbs"),
    )
    parts = []
    for label, key in names:
        if rule.get(key):
            parts.append(f"{label}:[{', '.join(chr(34) + v + chr(34) for v in rule[key])}]")
    return "{" + ", ".join(parts) + "}"
