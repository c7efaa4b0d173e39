"""
Handles SelfSubjectReview, (Self|Local)SubjectAccessReview, SelfSubjectRulesReview and TokenReview.
"""

from collections.abc import Mapping
from typing import Any

from moxwell.api.requests import UserInfo
from moxwell.embedded.apiserver.auth.policy_rules import AuthorizationAttributes
from moxwell.embedded.apiserver.auth.rbac import MASTERS, Authorizer
from moxwell.embedded.apiserver.auth.tokens import ServiceAccountTokens
from moxwell.embedded.apiserver.request_info import ApiCall
from moxwell.embedded.apiserver.status_errors import ErrorCause, invalid

Object = dict[str, Any]


def user_info(user: UserInfo) -> Object:
    """Convert a user to ``UserInfo`` of a review."""
    made: Object = {"username": user.name}
    if user.uid:
        made["uid"] = user.uid
    if user.groups:
        made["groups"] = list(user.groups)
    if user.extra:
        made["extra"] = {key: list(values) for key, values in user.extra.items()}
    return made


class AccessReviews:
    """Handles reviews by kind."""

    def __init__(self, authorizer: Authorizer, tokens: ServiceAccountTokens) -> None:
        self._authorizer, self._tokens = authorizer, tokens

    def handle(self, call: ApiCall, obj: Object) -> Object:
        kind, spec = call.resource.kind, obj.get("spec") or {}
        if kind == "SelfSubjectReview":
            return {**_bare(obj), "status": {"userInfo": user_info(call.user)}}
        if kind == "TokenReview":
            return {**obj, "status": self._token(spec)}
        if kind == "SelfSubjectRulesReview":
            return {**obj, "status": self._rules(call.user, spec.get("namespace", ""))}
        user = call.user
        if kind != "SelfSubjectAccessReview":
            user = _named(spec)
            if not user.name and not user.groups:
                text = 'Invalid value: "": at least one of user or group must be specified'
                cause = ErrorCause("FieldValueInvalid", text, "spec.user")
                raise invalid("", call.resource.group, "", [cause])
        if kind == "LocalSubjectAccessReview":
            self._local(call, spec)
        return {**obj, "status": self._access(call, user, spec)}

    def _local(self, call: ApiCall, spec: Object) -> None:
        given = (spec.get("resourceAttributes") or {}).get("namespace", "")
        if given != call.namespace:
            text = f'Invalid value: "{given}": must match metadata.namespace'
            cause = ErrorCause("FieldValueInvalid", text, "spec.resourceAttributes.namespace")
            raise invalid(call.resource.kind, call.resource.group, "", [cause])

    def _access(self, call: ApiCall, user: UserInfo, spec: Object) -> Object:
        about, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if (about is None) == (path is None):
            text = (
                "Invalid value: null: exactly one of nonResourceAttributes or"
                " resourceAttributes must be"
                " specified"
            )
            cause = ErrorCause("FieldValueInvalid", text, "spec.resourceAttributes")
            raise invalid(call.resource.kind, call.resource.group, "", [cause])
        attributes = (
            _ask(about or {})
            if path is None
            else AuthorizationAttributes(path.get("verb", ""), path=path.get("path", ""))
        )
        decision = self._authorizer.decide(user, attributes)
        reason = {"reason": decision.reason} if decision.reason else {}
        return {"allowed": decision.allowed, **reason}

    def _rules(self, user: UserInfo, namespace: str) -> Object:
        resources, paths = [], []
        rules: list[Mapping[str, Any]] = list(self._authorizer.rules_of(user, namespace))
        if MASTERS in user.groups:
            rules = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
            rules.append({"verbs": ["*"], "nonResourceURLs": ["*"]})
        for rule in rules:
            if rule.get("resources"):
                keys = ("verbs", "apiGroups", "resources", "resourceNames")
                resources.append({k: rule[k] for k in keys if rule.get(k)})
            if rule.get("nonResourceURLs"):
                paths.append({k: rule[k] for k in ("verbs", "nonResourceURLs")})
        return {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}

    def _token(self, spec: Object) -> Object:
        audiences = spec.get("audiences") or ()
        proven = self._tokens.verify(spec.get("token", ""), audiences)
        if proven is None:
            return {"user": {}, "error": "invalid bearer token"}
        return {
            "authenticated": True,
            "user": user_info(proven.user),
            "audiences": list(proven.audiences),
        }


def _bare(obj: Object) -> Object:
    return {k: v for k, v in obj.items() if k != "spec"}


def _named(spec: Object) -> UserInfo:
    extra = {key: tuple(values) for key, values in (spec.get("extra") or {}).items()}
    return UserInfo(
        name=spec.get("user", ""),
        groups=tuple(spec.get("groups") or ()),
        uid=spec.get("uid", ""),
        extra=extra,
    )


def _ask(about: Object) -> AuthorizationAttributes:
    return AuthorizationAttributes(
        about.get("verb", ""),
        about.get("group", ""),
        about.get("resource", ""),
        about.get("subresource", ""),
        about.get("name", ""),
        about.get("namespace", ""),
    )
