"""
From what an apiserver answered to one of our classes: one table, every row of it tested.

A row is (code, reason, cause) and the first that fits wins; an empty field fits anything. The
answer's own text is kept, since a Kubernetes ``Status`` is written for people; answers that are no
``Status`` (a proxy's page) are cut short. Every class also says what the answer was, as ``status``.
"""

from typing import NamedTuple

import msgspec
from msgspec import field

from moxwell.api.meta import Value
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


class Cause(Value, frozen=True, kw_only=True):
    """One of several reasons for a refusal."""

    type: str = field(name="reason", default="")
    message: str = ""
    field: str = ""


class Details(Value, frozen=True, kw_only=True):
    """What a refusal is about."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] | None = ()
    retry_after_seconds: int = msgspec.field(name="retryAfterSeconds", default=0)


class Status(Value, frozen=True, kw_only=True):
    """The answer of an apiserver that is not an object."""

    status: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None

    @property
    def causes(self) -> tuple[Cause, ...]:
        return (self.details and self.details.causes) or ()

    @property
    def retry_after_seconds(self) -> int:
        return self.details.retry_after_seconds if self.details else 0


class Answered(MoxwellError):
    """Mixed into every class below: an apiserver answered, and this is what."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message or f"the apiserver answered {status.code}")
        self.status = status

    @property
    def retry_after_seconds(self) -> int:
        return self.status.retry_after_seconds


class BadRequest(Answered, Invalid):
    reason = "BadRequest"


class InvalidObject(Answered, Invalid):
    reason = "InvalidObject"


class TooLarge(Answered, Invalid):
    reason = "RequestEntityTooLarge"


class Unauthorized(Answered, Denied):
    reason = "Unauthorized"


class Forbidden(Answered, Denied):
    reason = "Forbidden"


class NamespaceTerminating(Answered, Denied):
    """Nothing can be made in a namespace that is going away."""

    reason = "NamespaceTerminating"


class NotFound(Answered, Missing):
    reason = "NotFound"


class NotAllowed(Answered, Unsupported):
    reason = "MethodNotAllowed"


class NotAcceptable(Answered, Unsupported):
    reason = "NotAcceptable"


class UnsupportedMedia(Answered, Unsupported):
    reason = "UnsupportedMediaType"


class AlreadyExists(Answered, Conflict):
    """Somebody made it first, perhaps we ourselves before a crash."""

    reason = "AlreadyExists"


class WriteConflict(Answered, Conflict):
    """The object changed since it was read."""

    reason = "Conflict"


class ApplyConflict(Answered, Conflict):
    """Another manager owns a field that was to be changed; ``status.causes`` names them."""

    reason = "FieldManagerConflict"


class Gone(Answered, Retryable):
    """The version or page asked for is no longer kept: list again."""

    reason = "Expired"


class NotYet(Answered, Retryable):
    """The version asked for is newer than this server has seen."""

    reason = "ResourceVersionTooLarge"


class TooManyRequests(Answered, Busy):
    reason = "TooManyRequests"


class EvictionBlocked(Answered, Busy):
    """A disruption budget does not allow this eviction now."""

    reason = "DisruptionBudget"


class TimedOut(Answered, Unreachable):
    reason = "Timeout"


class Unavailable(Answered, Unreachable):
    reason = "ServiceUnavailable"


class ServerBroken(Answered, Retryable):
    reason = "InternalError"


class Refused(Answered, Invalid):
    """A 4xx that no other row knows."""

    reason = "Refused"


class Row(NamedTuple):
    code: int
    reason: str
    cause: str
    raises: type[Answered]


TABLE = (
    Row(400, "", "", BadRequest),
    Row(401, "", "", Unauthorized),
    Row(403, "", "NamespaceTerminating", NamespaceTerminating),
    Row(403, "", "", Forbidden),
    Row(404, "", "", NotFound),
    Row(405, "", "", NotAllowed),
    Row(406, "", "", NotAcceptable),
    Row(408, "", "", TimedOut),
    Row(409, "AlreadyExists", "", AlreadyExists),
    Row(409, "", "FieldManagerConflict", ApplyConflict),
    Row(409, "", "", WriteConflict),
    Row(410, "", "", Gone),
    Row(413, "", "", TooLarge),
    Row(415, "", "", UnsupportedMedia),
    Row(422, "", "", InvalidObject),
    Row(429, "", "DisruptionBudget", EvictionBlocked),
    Row(429, "", "", TooManyRequests),
    Row(500, "", "", ServerBroken),
    Row(503, "", "", Unavailable),
    Row(504, "", "ResourceVersionTooLarge", NotYet),
    Row(504, "", "", TimedOut),
)

_STATUS = msgspec.json.Decoder(Status)


def error_for(status: Status) -> Answered:
    """The error that a Status means."""
    causes = {cause.type for cause in status.causes}
    for row in TABLE:
        known = row.code == status.code and row.reason in ("", status.reason)
        if known and (row.cause in causes or not row.cause):
            return row.raises(status)
    return (ServerBroken if status.code >= 500 else Refused)(status)


def error_from(code: int, body: bytes, retry_after: str = "") -> Answered:
    """The error that an answer means, whatever its body is."""
    try:
        status = _STATUS.decode(body)
    except msgspec.DecodeError:
        status = Status(message=_text(code, body))
    if retry_after.isdigit() and not status.retry_after_seconds:
        details = status.details or Details()
        details = msgspec.structs.replace(details, retry_after_seconds=int(retry_after))
        status = msgspec.structs.replace(status, details=details)
    return error_for(msgspec.structs.replace(status, code=code))


def _text(code: int, body: bytes) -> str:
    shown = " ".join(body[:200].decode(errors="replace").split())
    return f"the apiserver answered {code}: {shown}" if shown else ""
