"""Parses requests: resource path, verb and query options."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moxwell.api import requests
from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.resources import ServedResource

TRUE = frozenset(["1", "t", "T", "TRUE", "true", "True"])
FALSE = frozenset(["", "0", "f", "F", "FALSE", "false", "False"])
ADMIN = requests.UserInfo(name="system:moxwell", groups=("system:masters", "system:authenticated"))


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """The resource that a URL path names."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_path(path: str) -> RequestInfo | None:
    """Parse a resource path; None for discovery and other paths."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if "" in rest:
        return None
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        return _target(group, version, rest[2:], rest[1])
    return _target(group, version, rest, "")


def _target(group: str, version: str, rest: list[str], namespace: str) -> RequestInfo:
    name = rest[1] if len(rest) > 1 else ""
    subresource = "/".join(rest[2:])
    if rest[0] == "namespaces" and not group:
        namespace = name
    return RequestInfo(group, version, rest[0], namespace, name, subresource)


@dataclass(slots=True, kw_only=True)
class ApiCall:
    """A request for one resource; ``warnings`` are sent with the response."""

    request: requests.Request
    resource: ServedResource
    verb: str
    namespace: str
    name: str
    subresource: str
    user: requests.UserInfo
    query: Mapping[str, str]
    warnings: list[str] = field(default_factory=list)

    def flag(self, name: str) -> bool:
        """Parse a boolean query option as Go does."""
        value = self.query.get(name, "")
        if value in TRUE:
            return True
        if value in FALSE:
            return False
        raise status_errors.bad_request(f'strconv.ParseBool: parsing "{value}": invalid syntax')

    def number(self, name: str) -> int | None:
        value = self.query.get(name, "")
        if not value:
            return None
        if not value.lstrip("-").isdigit():
            raise status_errors.bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax')
        return int(value)

    @property
    def dry_run(self) -> bool:
        value = self.query.get("dryRun", "")
        if value not in ("", "All"):
            cause = status_errors.ErrorCause(
                "FieldValueNotSupported",
                f'Unsupported value: ["{value}"]: supported values: "All"',
                "dryRun",
            )
            raise status_errors.invalid(_options(self.verb), "meta.k8s.io", "", [cause])
        return bool(value)

    @property
    def manager(self) -> str:
        """The field manager of the request."""
        named = self.query.get("fieldManager", "")
        if len(named) > 128:
            text = "Too long: may not be more than 128 bytes"
            cause = status_errors.ErrorCause("FieldValueTooLong", text, "fieldManager")
            raise status_errors.invalid(_options(self.verb), "meta.k8s.io", "", [cause])
        if named:
            return named
        agent = self.request.headers.get("user-agent", "")
        return agent.split("/")[0][:128] or "unknown"

    @property
    def validation(self) -> str:
        value = self.query.get("fieldValidation", "") or "Warn"
        if value not in ("Strict", "Warn", "Ignore"):
            cause = status_errors.ErrorCause(
                "FieldValueNotSupported",
                f'Unsupported value: "{value}": supported values: "", "Ignore", "Strict", "Warn"',
                "fieldValidation",
            )
            raise status_errors.invalid(_options(self.verb), "meta.k8s.io", "", [cause])
        return value


def _options(verb: str) -> str:
    return {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}.get(
        verb, "DeleteOptions"
    )


def request_verb(request: requests.Request, named: bool, watch: bool) -> str:
    """Return the API verb of a request."""
    match request.method:
        case "GET" | "HEAD":
            return "get" if named and not watch else "watch" if watch else "list"
        case "POST":
            return "create"
        case "PUT" if named:
            return "update"
        case "PATCH" if named:
            return "patch"
        case "DELETE":
            return "delete" if named else "deletecollection"
    raise status_errors.method_not_allowed()
