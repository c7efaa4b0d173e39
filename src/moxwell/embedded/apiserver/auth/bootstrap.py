"""
The default ClusterRoles and ClusterRoleBindings of every cluster.

``admin``, ``edit`` and ``view`` are aggregated from labelled roles, so that charts can extend them.
Kubelets are bound to no role: the Node authorizer decides for them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from moxwell.embedded.apiserver.auth.default_roles import default_rules
from moxwell.embedded.apiserver.auth.policy_rules import FULL_AUTHORITY, uncovered

Object = dict[str, Any]
GROUP = "rbac.authorization.k8s.io"
ROLES, BINDINGS = f"clusterroles.{GROUP}", f"clusterrolebindings.{GROUP}"
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_AUTHENTICATED = "system:authenticated"
_BOUND_GROUPS = {
    "cluster-admin": ("system:masters",),
    "system:basic-user": (_AUTHENTICATED,),
    "system:discovery": (_AUTHENTICATED,),
    "system:monitoring": ("system:monitoring",),
    "system:node": (),
    "system:public-info-viewer": (_AUTHENTICATED, "system:unauthenticated"),
    "system:service-account-issuer-discovery": ("system:serviceaccounts",),
}
_BOUND_USERS = {
    "system:kube-controller-manager": "system:kube-controller-manager",
    "system:kube-scheduler": "system:kube-scheduler",
    "system:node-proxier": "system:kube-proxy",
    "system:volume-scheduler": "system:kube-scheduler",
}


def node_rules() -> list[Object]:
    """The rules that are the same for all kubelets; the Node authorizer restricts them."""
    return default_rules()["system:node"]


def _meta(name: str, labels: Mapping[str, str] | None = None) -> Object:
    return {
        "name": name,
        "labels": {**_LABELS, **(labels or {})},
        "annotations": {_AUTOUPDATE: "true"},
    }


def _roles() -> list[Object]:
    rules = {"cluster-admin": [dict(rule) for rule in FULL_AUTHORITY], **default_rules()}
    return [
        {"metadata": _meta(name, _aggregated_into(name)), "rules": rules[name]} for name in rules
    ]


def _aggregated_into(name: str) -> dict[str, str]:
    if not name.startswith("system:aggregate-to-"):
        return {}
    return {f"{GROUP}/{name.removeprefix('system:')}": "true"}


def _aggregate(name: str, into: str) -> Object:
    chosen = {"matchLabels": {f"{GROUP}/aggregate-to-{name}": "true"}}
    labels = {f"{GROUP}/aggregate-to-{into}": "true"} if into else {}
    return {
        "metadata": _meta(name, labels),
        "aggregationRule": {"clusterRoleSelectors": [chosen]},
    }


def _binding(role: str, kind: str, names: Sequence[str]) -> Object:
    return {
        "metadata": _meta(role),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": kind, "apiGroup": GROUP, "name": name} for name in names],
    }


def objects() -> list[tuple[str, Object]]:
    """Return the group resource and the object of every default role and binding."""
    found = [(ROLES, role) for role in _roles()]
    found += [
        (ROLES, _aggregate(name, into))
        for name, into in (("admin", ""), ("edit", "admin"), ("view", "edit"))
    ]
    found += [(BINDINGS, _binding(r, "Group", names)) for r, names in _BOUND_GROUPS.items()]
    return found + [(BINDINGS, _binding(r, "User", [name])) for r, name in _BOUND_USERS.items()]


def reconciled(stored: Object, default: Object) -> Object | None:
    """
    The stored object with everything that the default has; None if nothing is to be changed.

    Rules and subjects of others stay, with one exception: earlier versions bound every kubelet to
    ``system:node``, which gave each node the Secrets of all. ``autoupdate: "false"`` keeps an
    object as it is.
    """
    meta = stored["metadata"]
    if (meta.get("annotations") or {}).get(_AUTOUPDATE, "true") != "true":
        return None
    labels = {**(meta.get("labels") or {}), **default["metadata"]["labels"]}
    made: Object = {**stored, "metadata": {**meta, "labels": labels}}
    if "aggregationRule" in default:
        made["aggregationRule"] = default["aggregationRule"]
    if "rules" in default:
        held = stored.get("rules") or []
        missing = [rule for rule in default["rules"] if uncovered(held, [rule])]
        made["rules"] = [*held, *missing]
    if "subjects" in default:
        made["subjects"] = _subjects(stored, default)
        if not made["subjects"]:
            del made["subjects"]
    return None if made == stored else made


def _subjects(stored: Object, default: Object) -> list[Object]:
    held = stored.get("subjects") or []
    if default["metadata"]["name"] == "system:node":
        return [subject for subject in held if subject.get("name") != "system:nodes"]
    return [*held, *(subject for subject in default["subjects"] if subject not in held)]
