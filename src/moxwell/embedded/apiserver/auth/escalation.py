"""
The escalation check: nobody grants permissions that they do not hold.

A writer of a role needs its rules, or the verb ``escalate``; a writer of a binding needs the rules
of the role, or the verb ``bind``. A role that does not exist yet has unknown rules, so that only
``bind`` allows a binding to it. A role that aggregates others needs full authority. Changes of
owner references and finalizers alone are not checked, because the garbage collector makes them.
"""

from typing import Any

from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.auth.policy_rules import (
    FULL_AUTHORITY,
    AuthorizationAttributes,
    PolicyRule,
    format_rules,
    quoted,
    uncovered,
)
from moxwell.embedded.apiserver.auth.rbac import (
    GROUP,
    MASTERS,
    Authorizer,
    RoleNotFound,
    aggregate,
)
from moxwell.embedded.apiserver.request_info import ApiCall

Object = dict[str, Any]
_NEEDS_FULL_AUTHORITY = "must have cluster-admin privileges to use the aggregationRule"
_COLLECTED = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")


class EscalationCheck:
    """Checks writes of roles and bindings."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def check(self, call: ApiCall, new: Object, old: Object | None) -> None:
        """Raise 403 if the writer grants what they do not hold; 404 if the role is missing."""
        if call.resource.group != GROUP or MASTERS in call.user.groups:
            return
        if old is not None and _without_collected(new) == _without_collected(old):
            return
        if call.resource.kind in ("Role", "ClusterRole"):
            self._check_role(call, new, old)
        elif call.resource.kind in ("RoleBinding", "ClusterRoleBinding"):
            self._check_binding(call, new)

    def _check_role(self, call: ApiCall, new: Object, old: Object | None) -> None:
        resource = call.resource
        escalate = AuthorizationAttributes(
            "escalate", GROUP, resource.plural, "", call.name, call.namespace
        )
        if self._authorizer.is_allowed(call.user, escalate):
            return
        self._require(call, new, new.get("rules") or [])
        if _aggregates(new) or (old is not None and _aggregates(old)):
            held = list(self._authorizer.rules_of(call.user, ""))
            if uncovered(held, FULL_AUTHORITY):
                raise _forbidden(call, new, _NEEDS_FULL_AUTHORITY)

    def _check_binding(self, call: ApiCall, new: Object) -> None:
        ref = new.get("roleRef") or {}
        kind, name = ref.get("kind", ""), ref.get("name", "")
        plural = {"ClusterRole": "clusterroles", "Role": "roles"}.get(kind, "")
        bind = AuthorizationAttributes(
            "bind", ref.get("apiGroup", ""), plural, "", name, call.namespace
        )
        if plural and self._authorizer.is_allowed(call.user, bind):
            return
        if not plural:
            raise status_errors.unknown_error(f'unsupported role reference kind: "{kind}"')
        if kind == "Role" and not call.namespace:
            raise status_errors.bad_request("Namespace parameter required.")
        try:
            rules = self._authorizer.rules_of_role(ref, call.namespace)
        except RoleNotFound as missing:
            raise status_errors.not_found(call.resource.plural, GROUP, missing.name) from None
        self._require(call, new, rules)

    def _require(self, call: ApiCall, new: Object, rules: list[PolicyRule]) -> None:
        """Raise 403 unless the rules of the user cover these."""
        user = call.user
        held = list(self._authorizer.rules_of(user, call.namespace))
        missing = uncovered(held, rules)
        if not missing:
            return
        why = (
            f'user "{user.name}" (groups={quoted(user.groups)}) is attempting to grant RBAC'
            f" permissions not currently held:\n{format_rules(missing)}"
        )
        errors = self._authorizer.resolution_errors(user, call.namespace)
        if errors:
            errors = [error.replace(f".{GROUP}", f"s.{GROUP}", 1) for error in errors]
            why = f"{why}; resolution errors: [{aggregate(errors)}]"
        raise _forbidden(call, new, why)


def _aggregates(role: Object) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _without_collected(obj: Object) -> Object:
    meta = {key: value for key, value in obj["metadata"].items() if key not in _COLLECTED}
    return {**obj, "metadata": meta}


def _forbidden(call: ApiCall, obj: Object, why: str) -> status_errors.StatusError:
    resource, name = call.resource, obj["metadata"].get("name", "")
    return status_errors.forbidden(resource.plural, resource.group, name, why)
