"""
RBAC policy rules: what a rule allows, and whether rules cover other rules. Pure.

A rule covers another one if it allows at least as much. The check is stricter than a request with
the same words: a rule that is limited to ``resourceNames`` never covers one that is not.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PolicyRule = Mapping[str, Any]
ALL = "*"
FULL_AUTHORITY: tuple[PolicyRule, ...] = (
    {"apiGroups": [ALL], "resources": [ALL], "verbs": [ALL]},
    {"nonResourceURLs": [ALL], "verbs": [ALL]},
)
_SHOWN = (
    ("APIGroups", "apiGroups"),
    ("Resources", "resources"),
    ("NonResourceURLs", "nonResourceURLs"),
    ("ResourceNames", "resourceNames"),
    ("Verbs", "verbs"),
)


@dataclass(frozen=True, slots=True)
class AuthorizationAttributes:
    """
    The attributes of an authorization decision; with ``path`` it is a non-resource request.

    ``node_selector`` is the value of a field selector ``spec.nodeName=VALUE``.
    """

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str | None = None
    node_selector: str = ""

    @property
    def full(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


# What a rule allows


def rule_allows(rule: PolicyRule, attributes: AuthorizationAttributes) -> bool:
    """Report whether the rule allows the request."""
    if not _has(rule, "verbs", attributes.verb):
        return False
    if attributes.path is not None:
        path = attributes.path
        return any(_path_covers(pattern, path) for pattern in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames") or ()
    if not _has(rule, "apiGroups", attributes.group) or (names and attributes.name not in names):
        return False
    return any(_is_resource(known, attributes) for known in rule.get("resources") or ())


def _has(rule: PolicyRule, key: str, value: str) -> bool:
    known = rule.get(key) or ()
    return value in known or ALL in known


def _is_resource(known: str, attributes: AuthorizationAttributes) -> bool:
    return known in (ALL, attributes.full) or bool(
        attributes.subresource and known == f"*/{attributes.subresource}"
    )


def _path_covers(pattern: str, path: str) -> bool:
    return pattern == path or (pattern.endswith(ALL) and path.startswith(pattern.rstrip(ALL)))


# What rules cover


def uncovered(held: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """The smallest parts of the wanted rules that no held rule covers."""
    return [
        part
        for rule in wanted
        for part in _parts(rule)
        if not any(_rule_covers(owner, part) for owner in held)
    ]


def _parts(rule: PolicyRule) -> Iterator[PolicyRule]:
    """Yield a rule for each combination of one group, resource, verb and name."""
    verbs = rule.get("verbs") or ()
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in verbs:
                part = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
                names = rule.get("resourceNames") or ()
                yield from ({**part, "resourceNames": [name]} for name in names)
                if not names:
                    yield part
    for path in rule.get("nonResourceURLs") or ():
        for verb in verbs:
            yield {"nonResourceURLs": [path], "verbs": [verb]}


def _rule_covers(owner: PolicyRule, part: PolicyRule) -> bool:
    if not _has(owner, "verbs", part["verbs"][0]):
        return False
    if "nonResourceURLs" in part:
        path = part["nonResourceURLs"][0]
        return any(_path_covers(pattern, path) for pattern in owner.get("nonResourceURLs") or ())
    names = owner.get("resourceNames") or ()
    if names and not (set(part.get("resourceNames") or ("",)) <= set(names)):
        return False
    if names and not part.get("resourceNames"):
        return False
    return _has(owner, "apiGroups", part["apiGroups"][0]) and _resource_covers(
        owner.get("resources") or (), part["resources"][0]
    )


def _resource_covers(held: Sequence[str], resource: str) -> bool:
    _, slash, subresource = resource.partition("/")
    return ALL in held or resource in held or bool(slash and f"*/{subresource}" in held)


# How rules are shown


def format_rules(rules: Iterable[PolicyRule]) -> str:
    """One line per rule, sorted; rules of the same resource are joined."""
    joined: dict[tuple[str, ...], dict[str, Any]] = {}
    shown: set[str] = set()
    for rule in rules:
        if "nonResourceURLs" in rule:
            shown.add(_format(rule))
            continue
        key = (*rule["apiGroups"], *rule["resources"], *rule.get("resourceNames", ()))
        known = joined.setdefault(key, {**rule, "verbs": []})
        known["verbs"] = [*known["verbs"], *rule["verbs"]]
    return "\n".join(sorted(shown | {_format(rule) for rule in joined.values()}))


def _format(rule: PolicyRule) -> str:
    parts = [f"{label}:{quoted(rule[key])}" for label, key in _SHOWN if rule.get(key)]
    return "{" + ", ".join(parts) + "}"


def quoted(values: Iterable[str]) -> str:
    """A list of strings as Go's ``%q`` prints it."""
    return "[" + " ".join(f'"{value}"' for value in values) + "]"
