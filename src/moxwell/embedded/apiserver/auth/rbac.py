"""
RBAC: who may do what, from the roles and bindings that are stored.

``system:masters`` may do everything; everybody else what some rule of a role bound to them
allows, and nothing is ever denied by a rule. Whoever writes roles or bindings must hold what
they give. Compiled bindings are kept until a role or binding changes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from moxwell.api import requests
from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.object_cache import Change, State
from moxwell.embedded.apiserver.pdb import selector_of
from moxwell.embedded.apiserver.request_info import ADMIN, Call

Object = dict[str, Any]
GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"
_STORES = tuple(
    f"{name}.{GROUP}" for name in ("clusterroles", "roles", "clusterrolebindings", "rolebindings")
)


@dataclass(frozen=True, slots=True)
class Ask:
    """One question: may somebody do this? With ``path`` it is about no resource."""

    verb: str
    group: str = ""
    resource: str = ""
    sub: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""

    @property
    def full(self) -> str:
        return f"{self.resource}/{self.sub}" if self.sub else self.resource


def allows(rule: Mapping[str, Any], ask: Ask) -> bool:
    """Whether one rule allows it."""
    verbs = rule.get("verbs") or ()
    if ask.verb not in verbs and "*" not in verbs:
        return False
    if ask.path:
        return any(_covers(pattern, ask.path) for pattern in rule.get("nonResourceURLs") or ())
    groups, names = rule.get("apiGroups") or (), rule.get("resourceNames") or ()
    if ask.group not in groups and "*" not in groups:
        return False
    if names and ask.name not in names:
        return False
    return any(_is_resource(known, ask) for known in rule.get("resources") or ())


def _is_resource(known: str, ask: Ask) -> bool:
    return known in ("*", ask.full) or bool(ask.sub and known == f"*/{ask.sub}")


def _covers(pattern: str, path: str) -> bool:
    if pattern == "*":
        return True
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


class Authorizer:
    """Answers questions, and refuses."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._kept: dict[str, list[tuple[Object, str, list[Object]]]] | None = None

    def changed(self, change: Change) -> None:
        if change.record.store in _STORES:
            self._kept = None

    # -- what is bound

    def _bindings(self) -> dict[str, list[tuple[Object, str, list[Object]]]]:
        """Per namespace (empty: everywhere): subject, its namespace, rules."""
        if self._kept is None:
            found: dict[str, list[tuple[Object, str, list[Object]]]] = {}
            for store in _STORES[2:]:
                for record in self._state.table(store).scan():
                    binding = record.object()
                    rules = self._rules(binding.get("roleRef") or {}, record.namespace)
                    for subject in binding.get("subjects") or ():
                        where = found.setdefault(record.namespace, [])
                        where.append((subject, subject.get("namespace", ""), rules))
            self._kept = found
        return self._kept

    def _rules(self, ref: Object, namespace: str) -> list[Object]:
        if ref.get("kind") == "ClusterRole":
            record = self._state.find(_STORES[0], ref.get("name", ""))
        else:
            record = self._state.find(_STORES[1], f"{namespace}/{ref.get('name', '')}")
        if record is None:
            return []
        role = record.object()
        if "aggregationRule" in role:
            return self._aggregated(role["aggregationRule"])
        return role.get("rules") or []

    def _aggregated(self, rule: Object) -> list[Object]:
        wanted = [selector_of(s) for s in rule.get("clusterRoleSelectors") or ()]
        found: list[Object] = []
        for record in self._state.table(_STORES[0]).scan():
            if any(selector.matches(record.labels) for selector in wanted):
                role = record.object()
                nested = role.get("aggregationRule")
                found += (
                    self._aggregated(nested)
                    if nested and nested != rule
                    else role.get("rules") or []
                )
        return found

    def rules_of(self, user: requests.User, namespace: str) -> Iterator[Object]:
        """Every rule that holds for a user in a namespace (or only everywhere)."""
        bound = self._bindings()
        for where in {"", namespace}:
            for subject, subject_namespace, rules in bound.get(where, ()):
                if _is_subject(subject, subject_namespace or where, user):
                    yield from rules

    def may(self, user: requests.User, ask: Ask) -> bool:
        if MASTERS in user.groups:
            return True
        return any(allows(rule, ask) for rule in self.rules_of(user, ask.namespace))

    # -- refusing

    def check(self, call: Call) -> None:
        """Raises 403 unless the caller may do this."""
        if call.user is ADMIN:
            return
        face = call.face
        namespace = call.namespace if face.namespaced or face.plural == "namespaces" else ""
        ask = Ask(call.verb, face.group, face.plural, call.sub, call.name, namespace)
        if not self.may(call.user, ask):
            raise status_errors.forbidden(face.plural, face.group, call.name, _why(call.user, ask))

    def check_path(self, request: requests.Request) -> None:
        user = request.user
        if user is None or MASTERS in user.groups:
            return
        ask = Ask(request.method.lower(), path=request.path)
        if not self.may(user, ask):
            raise status_errors.forbidden_path(
                f'User "{user.name}" cannot {ask.verb} path "{ask.path}"'
            )

    def check_grant(self, call: Call, obj: Object) -> None:
        """Nobody gives away what they do not hold."""
        face, user = call.face, call.user
        if face.group != GROUP or MASTERS in user.groups:
            return
        namespace = call.namespace
        if face.kind in ("Role", "ClusterRole"):
            verb, rules = "escalate", obj.get("rules") or []
        else:
            verb, rules = "bind", self._rules(obj.get("roleRef") or {}, namespace)
        role = "clusterroles" if face.kind.startswith("Cluster") else "roles"
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
        if self.may(user, Ask(verb, GROUP, role, "", name, namespace)):
            return
        missing = [rule for rule in rules if not self._holds(user, rule, namespace)]
        if missing:
            listed = "\n".join(_shown(rule) for rule in missing)
            groups = " ".join(f'"{g}"' for g in user.groups)
            why = (
                f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC'
                " permissions not"
                f" currently held:\n{listed}"
            )
            raise status_errors.forbidden(
                face.plural, face.group, obj["metadata"].get("name", ""), why
            )

    def _holds(self, user: requests.User, rule: Object, namespace: str) -> bool:
        mine = list(self.rules_of(user, namespace))
        return all(any(allows(held, ask) for held in mine) for ask in _asks(rule, namespace))


def _asks(rule: Object, namespace: str) -> Iterator[Ask]:
    """Everything a rule allows, one by one."""
    for verb in rule.get("verbs") or ():
        for path in rule.get("nonResourceURLs") or ():
            yield Ask(verb, path=path)
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                plain, _, sub = resource.partition("/")
                for name in rule.get("resourceNames") or ("",):
                    yield Ask(verb, group, plain, sub, name, namespace)


def _is_subject(subject: Object, namespace: str, user: requests.User) -> bool:
    match subject.get("kind"):
        case "User":
            return bool(subject.get("name") == user.name)
        case "Group":
            return subject.get("name") in user.groups
        case "ServiceAccount":
            return user.name == f"system:serviceaccount:{namespace}:{subject.get('name')}"
    return False


def _why(user: requests.User, ask: Ask) -> str:
    where = f'in the namespace "{ask.namespace}"' if ask.namespace else "at the cluster scope"
    return (
        f'User "{user.name}" cannot {ask.verb} resource "{ask.full}"'
        f' in API group "{ask.group}" {where}'
    )


def _shown(rule: Object) -> str:
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
