"""
Errors of Proxmox: one table maps HTTP status and message, or a task's exit status, to a class.

The base of a class says what to do about it (see :mod:`moxwell.errors`). The first pattern that
matches wins. Nearly every error has status 500, so the message is the only evidence; many failures
come later, as the exit status of a task that was accepted with 200.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from moxwell.errors import (
    Busy,
    Conflict,
    Denied,
    Invalid,
    Missing,
    MoxwellError,
    Retryable,
    Unreachable,
    Unsupported,
)

MAX_FIELDS = 32  # rejected parameters of one request that are reported
MAX_TEXT = 2048  # characters of a message that are kept: patterns and conditions get no more
TASK = 0  # stands for "exit status of a task" instead of an HTTP status


def shortened(text: str) -> str:
    """Return a text of Proxmox within the limit."""
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + " …"


class PveError(MoxwellError):
    """Proxmox, or the connection to it, refused a request."""

    def __init__(
        self,
        message: str,
        *,
        status: int = TASK,
        where: str = "",
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self.message = shortened(message.strip())
        self.status = status
        self.where = where
        self.fields = {k: shortened(v) for k, v in list((fields or {}).items())[:MAX_FIELDS]}
        details = "; ".join(f"{key}: {text.strip()}" for key, text in self.fields.items())
        text = " ".join(part for part in (self.message, details) if part) or f"status {status}"
        super().__init__(f"{where}: {text}" if where else text)


class RegionUnreachable(PveError, Unreachable):
    """No URL of the region answers, or its circuit breaker is open."""

    reason = "RegionUnreachable"


class OutcomeUnknown(PveError, Unreachable):
    """The connection broke after a change was sent; it may or may not have happened."""

    reason = "OutcomeUnknown"


class UnreadableResponse(PveError, Unreachable):
    """The response is not HTTP or exceeds a limit; other requests are not affected."""

    reason = "UnreadableResponse"


class Redirected(PveError, Unreachable):
    """The URL redirects; credentials are never sent to another server."""

    reason = "Redirected"


class HostUnreachable(PveError, Unreachable):
    """The region answers, but the host that the request is for does not."""

    reason = "HostUnreachable"


class AgentNotRunning(PveError, Unreachable):
    """The guest agent does not answer (yet)."""

    reason = "AgentNotRunning"


class Locked(PveError, Busy):
    """The guest or a file is locked by another operation."""

    reason = "Locked"


class Overloaded(PveError, Busy):
    """The server cannot answer now."""

    reason = "Overloaded"


class NoQuorum(PveError, Busy):
    """The cluster has no quorum and refuses changes until more of its hosts run."""

    reason = "NoQuorum"


class StorageFull(PveError, Busy):
    """The storage is full; the request succeeds once space is freed."""

    reason = "StorageFull"


class InUse(PveError, Busy):
    """The object is still used by another one."""

    reason = "InUse"


class ConfigChanged(PveError, Conflict):
    """The digest does not match: the configuration was changed in between."""

    reason = "ConfigChanged"


class Exists(PveError, Conflict):
    """The name or id exists already."""

    reason = "AlreadyExists"


class WrongState(PveError, Conflict):
    """The guest is not in the power state that the request needs."""

    reason = "WrongState"


class HotplugRefused(PveError, Conflict):
    """The running guest did not apply the change; it stays pending."""

    reason = "HotplugRefused"


class GuestMissing(PveError, Missing):
    """There is no such guest on that host (it may be on another)."""

    reason = "GuestMissing"


class HostMissing(PveError, Missing):
    """There is no such host in the region."""

    reason = "HostMissing"


class VolumeMissing(PveError, Missing):
    """There is no such volume on that storage, seen from that host."""

    reason = "VolumeMissing"


class TaskMissing(PveError, Missing):
    """There is no such task on that host."""

    reason = "TaskMissing"


class ObjectMissing(PveError, Missing):
    """Another object that the request names does not exist."""

    reason = "NotFound"


class CredentialsRefused(PveError, Denied):
    """The credentials are wrong, expired or disabled."""

    reason = "CredentialsRefused"


class PermissionDenied(PveError, Denied):
    """These credentials lack a privilege; the message names it."""

    reason = "PermissionDenied"
    retry_seconds = 60.0  # a corrected role causes no event


class Protected(PveError, Denied):
    """The guest has ``protection=1``."""

    reason = "Protected"


class NotSupported(PveError, Unsupported):
    """The storage, guest or release does not support the request."""

    reason = "Unsupported"


class InvalidParameter(PveError, Invalid):
    """A parameter is invalid."""

    reason = "InvalidParameter"


class StartFailed(PveError, Retryable):
    """QEMU did not start; the task log contains the reason."""

    reason = "StartFailed"


class ShutdownTimedOut(PveError, Retryable):
    """The guest did not shut down in time."""

    reason = "ShutdownTimedOut"


class TaskAborted(PveError, Retryable):
    """The task was stopped before its work was done."""

    reason = "TaskAborted"


class UnknownPveError(PveError, Retryable):
    """Proxmox failed with an error that is not in the table."""

    reason = "ProxmoxError"


class InvalidAnswer(UnknownPveError):
    """The answer is not what the endpoint may answer: no JSON, wrong types, or over a limit."""

    reason = "InvalidAnswer"


@dataclass(frozen=True, slots=True)
class ErrorPattern:
    """HTTP statuses (empty: any) and a pattern that is searched in message and fields."""

    statuses: frozenset[int]
    pattern: re.Pattern[str]
    error: type[PveError]


def _rows(rows: Iterable[tuple[tuple[int, ...], str, type[PveError]]]) -> tuple[ErrorPattern, ...]:
    return tuple(ErrorPattern(frozenset(s), re.compile(p, re.IGNORECASE), e) for s, p, e in rows)


TABLE: tuple[ErrorPattern, ...] = _rows(
    [
        ((301, 302, 303, 307, 308), r"", Redirected),
        ((401,), r"", CredentialsRefused),
        ((403,), r"pool '.*' does not exist", ObjectMissing),
        ((403,), r"", PermissionDenied),
        ((501,), r"for data too large", InvalidParameter),
        ((501,), r"", NotSupported),
        ((595, 596, 599), r"", HostUnreachable),
        ((), r"hostname lookup '.*' failed|no such cluster node|Target '.*' does not exist",
         HostMissing),
        ((), r"cluster not ready - no quorum", NoQuorum),
        ((429, 502, 503, 504), r"", Overloaded),
        ((), r"guest agent is not running|agent.*got timeout|qga command .* timeout",
         AgentNotRunning),
        ((), r"No QEMU guest agent configured", NotSupported),
        ((), r"Agent error", InvalidParameter),
        ((), r"checksum mismatch|detected modified configuration", ConfigChanged),
        ((), r"(VM|CT) is locked|can't lock file|cfs-lock .* error|got lock timeout"
             r"|unable to acquire .* lock|got lock request timeout", Locked),
        ((), r"protection mode enabled|cannot remove protected volume", Protected),
        ((), r"permission check failed|only root can", PermissionDenied),
        ((), r"used in HA resources and purge", InUse),
        ((), r"still in use|\bnot empty|is used by|if subnets exists", InUse),
        ((), r"no space left|not enough (free )?space|out of (disk )?space|insufficient free space"
             r"|data space .* exhausted|disk quota exceeded", StorageFull),
        ((), r"no such task|unable to open file - No such file|unable to parse worker upid",
         TaskMissing),
        ((), r"Configuration file '.*' does not exist|unable to find configuration file for"
             r"|could not find target (VM|CT)|resource '.*' does not exist in cluster"
             r"|Guest '.*' does not exist", GuestMissing),
        ((), r"already exists?|already defined|already used|already in use|already attached"
             r"|File exists|is already a pool member|belongs already to pool"
             r"|refusing to override existing file", Exists),
        ((), r"is running - destroy failed|(VM|CT) \d+ (is )?not running|already running"
             r"|is paused - cannot|if VM is running|without --online|(CT|VM) is running"
             r"|is not a pool member", WrongState),
        ((), r"hotplug problem", HotplugRefused),
        ((), r"no such logical volume|volume '.*' does not exist|volume_size_info on .* failed"
             r"|failed to stat '|dataset does not exist|disk image '.*' does not exist"
             r"|rbd: error opening image", VolumeMissing),
        ((), r"(Linked clone|Snapshot|.*) feature is not (supported|available)"
             r"|not allowed for linked clones|\(VM uses local storage\)"
             r"|can't clone to non-shared storage|migrated to rules|No replicatable volumes"
             r"|is not supported|if it's a template|a template to a template|contains snapshots"
             r"|vcpus allowed per VM|host NUMA node\d+ doesn't exist"
             r"|feature for '.*' is not available|only .* is supported|requires cli environment"
             r"|node is not in a cluster", NotSupported),
        ((), r"does not exist|no such |not HA managed|no rule at position|can't find (file|any)"
             r"|controller .* don't exist|mapping '.*' not found", ObjectMissing),
        ((), r"start failed|QEMU exited with code", StartFailed),
        ((TASK,), r"^(interrupted by signal|received interrupt|unexpected status"
                  r"|job (errors|cancelled)|(migration )?aborted)", TaskAborted),
        ((), r"quit/powerdown failed", ShutdownTimedOut),
        ((), r"got timeout|timed out|timeout", Overloaded),
        ((400,), r"", InvalidParameter),
        ((), r"validation error|unable to parse|invalid |not a multiple|missing value for required"
             r"|must be equal to vm static memory|need to define a policy|needs to be enabled"
             r"|no options specified|you can't |cannot use |boundary rule broken"
             r"|Parameter verification failed|unmanaged resource|must not be identical"
             r"|reserved name|unknown section type|unable to (delete required|modify read-only)"
             r"|unexpected property|content type needs to be|does not look like|contains no config"
             r"|more resources than available|unable to shrink|format error|value too large"
             r"|is not in \w+ format|no decompression method|has no \.ovf file", InvalidParameter),
    ]
)  # fmt: skip


def find_pattern(status: int, text: str) -> ErrorPattern | None:
    """Return the first pattern that matches."""
    for row in TABLE:
        if (not row.statuses or status in row.statuses) and row.pattern.search(text):
            return row
    return None


def classify(
    status: int, message: str, *, where: str = "", fields: Mapping[str, str] | None = None
) -> PveError:
    """Return the error of a status and message."""
    texts = [message, *list((fields or {}).values())[:MAX_FIELDS]]
    row = find_pattern(status, "\n".join(map(shortened, texts)))
    error = row.error if row else UnknownPveError
    return error(message, status=status, where=where, fields=fields)


def classify_exit(exit_text: str, *, where: str = "") -> PveError | None:
    """Return the error of a task's exit status; None if the task succeeded."""
    if exit_text == "OK" or exit_text.startswith("WARNINGS:"):
        return None
    return classify(TASK, exit_text, where=where)


class _Body(msgspec.Struct):
    message: str = ""
    errors: dict[str, str] | None = None


_BODY = msgspec.json.Decoder(_Body, strict=False)


def from_response(status: int, reason: str, body: bytes, *, where: str) -> PveError:
    """Return the error of an HTTP response; the reason phrase replaces an empty or foreign body."""
    try:
        content = _BODY.decode(body) if body else _Body()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        content = _Body()
    return classify(status, content.message or reason, where=where, fields=content.errors)
