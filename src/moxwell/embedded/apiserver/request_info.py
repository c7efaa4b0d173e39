"""Parses requests: resource path, verb and query options."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from moxwell.api import requests
from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.resources import ServedResource

_INTEGER = re.compile(r"[+-]?[0-9]+")
MAX_DIGITS = 64
_DIGITS = re.compile(r"[0-9]+")
ADMIN = requests.UserInfo(name="system:moxwell", groups=("system:masters", "system:authenticated"))


def is_true(value: str) -> bool:
    """Parse a boolean query value."""
    return value != "0" and value.lower() != "false"


def parse_integer(text: str, function: str, lowest: int, limit: int) -> int:
    """Parse an integer with the errors of Go's ``strconv``."""
    pattern = _DIGITS if function == "ParseUint" else _INTEGER
    if not pattern.fullmatch(text):
        problem = "invalid syntax"
    elif len(text) > MAX_DIGITS or not lowest <= int(text) < limit:
        problem = "value out of range"
    else:
        return int(text)
    raise status_errors.bad_request(
        f'strconv.{function}: parsing "{status_errors.shortened(text)}": {problem}'
    )


def parse_revision(text: str) -> int:
    """Parse a resource version."""
    return parse_integer(text, "ParseUint", 0, 2**64)


def cleaned(request: requests.Request) -> requests.Request:
    """Replace what UTF-8 cannot encode in path, query and headers by U+FFFD."""
    texts = [request.path, *request.headers.values()]
    for pair in request.query:
        texts += pair
    if "".join(texts).isascii():
        return request
    return replace(
        request,
        path=_clean(request.path),
        query=tuple((_clean(key), _clean(value)) for key, value in request.query),
        headers={key: _clean(value) for key, value in request.headers.items()},
    )


def _clean(text: str) -> str:
    return text.encode(errors="surrogatepass").decode(errors="replace")


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """The resource that a URL path names."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@lru_cache(maxsize=1024)  # authorization, serving and audit of a request each need it
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
        """Parse a boolean query option; like kube-apiserver, any value but 0 and false is true."""
        return is_true(self.query[name]) if name in self.query else False

    def number(self, name: str) -> int | None:
        """Parse an integer query option as Go does."""
        value = self.query.get(name)
        if value is None:
            return None
        return parse_integer(value, "ParseInt", -(2**63), 2**63)

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
        if len(named.encode()) > 128:
            text = "Too long: may not be more than 128 bytes"
            cause = status_errors.ErrorCause("FieldValueTooLong", text, "fieldManager")
            raise status_errors.invalid(_options(self.verb), "meta.k8s.io", "", [cause])
        for at, char in enumerate(named):
            if not char.isprintable():
                text = f"Invalid value: {quoted(named)}: invalid character U+{ord(char):04X}"
                cause = status_errors.ErrorCause(
                    "FieldValueInvalid", f"{text} (at position {at})", "fieldManager"
                )
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


def quoted(text: str) -> str:
    """Quote a text as JSON does."""
    return json.dumps(text, ensure_ascii=False)


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
