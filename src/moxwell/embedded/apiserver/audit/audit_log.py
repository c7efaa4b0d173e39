"""
Writes one ``audit.k8s.io/v1`` Event per request that the policy records, as a JSON line.

A request is recorded when its response is complete, a watch when it starts. Bodies pass the same
filter for secrets as the log, and bodies of more than 64 KiB are left out.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from moxwell.api.requests import Request, Response, UserInfo
from moxwell.clock import Clock
from moxwell.embedded.apiserver import metadata, request_info
from moxwell.embedded.apiserver.audit.policy import (
    LEVEL_NAMES,
    AuditedRequest,
    AuditLevel,
    AuditRule,
    default_rules,
    level_of,
    parse_policy,
)
from moxwell.embedded.apiserver.auth.impersonation import PREFIX, requested_user
from moxwell.embedded.apiserver.auth.reviews import user_info
from moxwell.embedded.apiserver.status_errors import StatusError
from moxwell.json_lines import JsonLinesFile
from moxwell.runtime.log import scrub_value

MAX_BODY = 64 << 10
Event = dict[str, Any]


class AuditLog:
    """The audit log of one API server; without a file nothing is recorded."""

    def __init__(
        self,
        file: JsonLinesFile | None,
        clock: Clock,
        rules: tuple[AuditRule, ...] | None = None,
    ) -> None:
        self._file, self._clock = file, clock
        self._rules = default_rules() if rules is None else rules

    def received(self) -> str:
        """The time stamp of a request that arrives."""
        return _micro_time(self._clock) if self._file is not None else ""

    def record(self, request: Request, response: Response, received: str) -> None:
        """Record a request that was answered; reads of this process itself are not recorded."""
        if self._file is None or (request.user is None and request.method == "GET"):
            return
        user = request.user or request_info.ADMIN
        about = audited(request, user)
        level = level_of(about, self._rules)
        if level is not AuditLevel.NONE:
            event = _event(request, response, user, about, level)
            times = {"requestReceivedTimestamp": received, "stageTimestamp": self.received()}
            self._file.append({**event, **times})

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def open_audit(folder: Path, clock: Clock) -> AuditLog:
    """The audit log ``audit/api.jsonl`` of a folder; ``audit-policy.yaml`` replaces the policy."""
    policy = folder / "audit-policy.yaml"
    rules = parse_policy(yaml.safe_load(policy.read_text())) if policy.exists() else None
    return AuditLog(JsonLinesFile(folder / "audit" / "api.jsonl"), clock, rules)


def audited(request: Request, user: UserInfo) -> AuditedRequest:
    """The attributes of a request that rules match."""
    target = request_info.parse_path(request.path)
    if target is None:
        verb = request.method.lower()
        return AuditedRequest(verb=verb, user=user.name, groups=user.groups, path=request.path)
    watch = dict(request.query).get("watch", "").lower() in ("1", "t", "true")
    try:
        verb = request_info.request_verb(request, bool(target.name), watch)
    except StatusError:
        verb = request.method.lower()
    return AuditedRequest(
        verb=verb,
        user=user.name,
        groups=user.groups,
        group=target.group,
        resource="/".join(filter(None, (target.plural, target.subresource))),
        name=target.name,
        namespace=target.namespace,
        path=request.path,
    )


def _event(
    request: Request,
    response: Response,
    user: UserInfo,
    about: AuditedRequest,
    level: AuditLevel,
) -> Event:
    event: Event = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": LEVEL_NAMES[level],
        "auditID": metadata.new_uid(),
        "stage": _stage(response),
        "requestURI": request.path,
        "verb": about.verb,
        "user": user_info(user),
        "sourceIPs": [request.remote] if request.remote else [],
        "userAgent": request.headers.get("user-agent", "")[:1024],
        "responseStatus": _status(response),
    }
    if any(name.startswith(PREFIX) for name in request.headers):
        wanted = requested_user(request.headers)
        event["impersonatedUser"] = user_info(wanted) if wanted is not None else {}
    if about.resource:
        event["objectRef"] = _reference(request, about)
    if level >= AuditLevel.REQUEST and about.verb not in ("get", "list", "watch"):
        event["requestObject"] = _body(request.body)
    if level is AuditLevel.REQUEST_RESPONSE and response.chunks is None:
        event["responseObject"] = _body(response.body)
    return event


def _stage(response: Response) -> str:
    whole = response.chunks is None and response.upgrade is None
    return "ResponseComplete" if whole else "ResponseStarted"


def _reference(request: Request, about: AuditedRequest) -> Event:
    target = request_info.parse_path(request.path)
    assert target is not None
    shown = {
        "resource": target.plural,
        "namespace": target.namespace,
        "name": target.name,
        "apiGroup": target.group,
        "apiVersion": target.version,
        "subresource": target.subresource,
    }
    return {key: value for key, value in shown.items() if value}


def _status(response: Response) -> Event:
    made: Event = {"metadata": {}, "code": response.status}
    if response.status >= 400:
        body = _body(response.body)
        if isinstance(body, dict):
            made |= {k: body[k] for k in ("status", "reason", "message") if k in body}
    return made


def _body(body: bytes) -> Any:
    """A JSON body without secrets; a description of any other."""
    if len(body) > MAX_BODY:
        return {"omitted": f"{len(body)} bytes"}
    try:
        return scrub_value("", json.loads(body)) if body.strip() else None
    except (ValueError, RecursionError):
        return {"omitted": f"{len(body)} bytes that are not JSON"}


def _micro_time(clock: Clock) -> str:
    return f"{clock.now().replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
