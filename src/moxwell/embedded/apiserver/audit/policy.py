"""
The audit policy: how much of a request is recorded. Pure.

Rules are those of an ``audit.k8s.io/v1`` Policy; the first that matches decides. Whatever the rules
say, bodies of resources that carry secrets are never recorded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Any

from moxwell.errors import Invalid

_SECRET = frozenset(
    [
        ("", "secrets"), ("", "configmaps"), ("", "serviceaccounts/token"),
        ("authentication.k8s.io", "tokenreviews"),
        ("certificates.k8s.io", "certificatesigningrequests"),
        ("bootstrap.cluster.x-k8s.io", "kubeadmconfigs"),
        ("bootstrap.cluster.x-k8s.io", "kubeadmconfigtemplates"),
        ("bootstrap.cluster.x-k8s.io", "talosconfigs"),
        ("bootstrap.cluster.x-k8s.io", "talosconfigtemplates"),
    ]
)  # fmt: skip
READS = ("get", "list", "watch")


# group (None: all, which no policy of an operator can say), resources, object names
ResourceRule = tuple[str | None, tuple[str, ...], tuple[str, ...]]


class AuditLevel(IntEnum):
    """How much is recorded."""

    NONE = 0
    METADATA = 1
    REQUEST = 2
    REQUEST_RESPONSE = 3


LEVELS = {
    "None": AuditLevel.NONE,
    "Metadata": AuditLevel.METADATA,
    "Request": AuditLevel.REQUEST,
    "RequestResponse": AuditLevel.REQUEST_RESPONSE,
}
LEVEL_NAMES = {level: name for name, level in LEVELS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedRequest:
    """The attributes of a request that rules match; ``resource`` includes the subresource."""

    verb: str
    user: str
    groups: tuple[str, ...] = ()
    group: str = ""
    resource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRule:
    """A rule; an empty field matches everything."""

    level: AuditLevel
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    resources: tuple[ResourceRule, ...] = ()

    def matches(self, request: AuditedRequest) -> bool:
        if not _any(self.users, request.user) or not _any(self.verbs, request.verb):
            return False
        if self.groups and not set(self.groups) & set(request.groups):
            return False
        if self.paths or self.resources or self.namespaces:
            return self._matches_path(request) or self._matches_resource(request)
        return True

    def _matches_path(self, request: AuditedRequest) -> bool:
        return not request.resource and any(fnmatchcase(request.path, p) for p in self.paths)

    def _matches_resource(self, request: AuditedRequest) -> bool:
        if not request.resource or self.paths:
            return False
        if self.namespaces and request.namespace not in self.namespaces:
            return False
        return not self.resources or any(
            group in (None, request.group)
            and (not names or any(_is_resource(request.resource, name) for name in names))
            and (not objects or request.name in objects)
            for group, names, objects in self.resources
        )


def default_rules() -> tuple[AuditRule, ...]:
    """Everything that a user changes, reads of Secrets, and no traffic that repeats itself."""
    none, heartbeats = AuditLevel.NONE, (("coordination.k8s.io", ("leases",), ()),)
    status = (("", ("nodes/status", "pods/status"), ()),)
    own = ("system:moxwell",)
    secrets = (("", ("secrets", "serviceaccounts/token"), ()),)
    return (
        AuditRule(level=none, verbs=("get", "head"), paths=("*",)),
        AuditRule(level=none, resources=(*heartbeats, ("", ("events",), ()))),
        AuditRule(level=none, resources=(("events.k8s.io", (), ()),)),
        AuditRule(level=none, groups=("system:nodes",), resources=status),
        AuditRule(level=none, users=own, verbs=READS),
        AuditRule(level=none, users=own, resources=((None, ("*/status",), ()),)),
        AuditRule(level=AuditLevel.METADATA, resources=secrets),
        AuditRule(level=none, groups=("system:nodes",), verbs=READS),
        AuditRule(level=AuditLevel.METADATA, users=own),
        AuditRule(level=AuditLevel.METADATA, verbs=READS),
        AuditRule(level=AuditLevel.REQUEST),
    )


def level_of(request: AuditedRequest, rules: Sequence[AuditRule]) -> AuditLevel:
    """The level of a request; at most Metadata where a body can carry a secret."""
    chosen = next((r.level for r in rules if r.matches(request)), AuditLevel.METADATA)
    base = request.resource.partition("/")[0]
    secret = {(request.group, request.resource), (request.group, base)} & _SECRET
    return min(chosen, AuditLevel.METADATA) if secret else chosen


def parse_policy(content: Any) -> tuple[AuditRule, ...]:
    """The rules of a Policy object; Invalid if it is none."""
    try:
        if content["kind"] != "Policy":
            raise KeyError("kind")
        return tuple(_rule(item) for item in content["rules"])
    except (KeyError, TypeError, AttributeError) as error:
        raise Invalid(
            f"the audit policy is not a Policy of audit.k8s.io/v1 ({error}): correct or remove it"
        ) from None


def _rule(item: Mapping[str, Any]) -> AuditRule:
    listed = item.get("resources") or ()
    return AuditRule(
        level=LEVELS[item["level"]],
        users=tuple(item.get("users") or ()),
        groups=tuple(item.get("userGroups") or ()),
        verbs=tuple(item.get("verbs") or ()),
        namespaces=tuple(item.get("namespaces") or ()),
        paths=tuple(item.get("nonResourceURLs") or ()),
        resources=tuple(_resource_rule(entry) for entry in listed),
    )


def _resource_rule(entry: Mapping[str, Any]) -> ResourceRule:
    names, objects = entry.get("resources") or (), entry.get("resourceNames") or ()
    return entry.get("group", ""), tuple(names), tuple(objects)


def _any(known: Sequence[str], value: str) -> bool:
    return not known or value in known


def _is_resource(resource: str, pattern: str) -> bool:
    return pattern == "*" or resource == pattern or fnmatchcase(resource, pattern)
