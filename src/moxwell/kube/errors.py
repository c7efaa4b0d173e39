"""
Maps a response of an apiserver to an error class.

The table has rows of (code, reason, cause); the first match wins and an empty field matches
anything. The message of a Kubernetes ``Status`` is kept; a body that is not a ``Status`` is
truncated. Every class has the response as ``status``.
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


class StatusCause(Value, frozen=True, kw_only=True):
    """One cause of a Status."""

    type: str = field(name="reason", default="")
    message: str = ""
    field: str = ""


class StatusDetails(Value, frozen=True, kw_only=True):
    """The details of a Status."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] | None = ()
    retry_after_seconds: int = msgspec.field(name="retryAfterSeconds", default=0)


class Status(Value, frozen=True, kw_only=True):
    """A Status object."""

    status: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None

    @property
    def causes(self) -> tuple[StatusCause, ...]:
        return (self.details and self.details.causes) or ()

    @property
    def retry_after_seconds(self) -> int:
        return self.details.retry_after_seconds if self.details else 0


class ApiServerAnswer(MoxwellError):
    """Mixed into every class below: the apiserver answered with this Status."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message or f"the apiserver answered {status.code}")
        self.status = status

    @property
    def retry_after_seconds(self) -> int:
        return self.status.retry_after_seconds


class KubeBadRequest(ApiServerAnswer, Invalid):
    reason = "BadRequest"


class InvalidObject(ApiServerAnswer, Invalid):
    reason = "InvalidObject"


class TooLarge(ApiServerAnswer, Invalid):
    reason = "RequestEntityTooLarge"


class Unauthorized(ApiServerAnswer, Denied):
    reason = "Unauthorized"


class KubeForbidden(ApiServerAnswer, Denied):
    reason = "Forbidden"


class NamespaceTerminating(ApiServerAnswer, Denied):
    """The namespace is being deleted; nothing can be created in it."""

    reason = "NamespaceTerminating"


class NotFound(ApiServerAnswer, Missing):
    reason = "NotFound"


class NotAllowed(ApiServerAnswer, Unsupported):
    reason = "MethodNotAllowed"


class NotAcceptable(ApiServerAnswer, Unsupported):
    reason = "NotAcceptable"


class UnsupportedMedia(ApiServerAnswer, Unsupported):
    reason = "UnsupportedMediaType"


class AlreadyExists(ApiServerAnswer, Conflict):
    """The object exists, possibly created by this process before a crash."""

    reason = "AlreadyExists"


class WriteConflict(ApiServerAnswer, Conflict):
    """The object changed since it was read."""

    reason = "Conflict"


class ApplyConflict(ApiServerAnswer, Conflict):
    """Another field manager owns a field of the apply; ``status.causes`` names it."""

    reason = "FieldManagerConflict"


class Gone(ApiServerAnswer, Retryable):
    """The resource version or continue token expired: list again."""

    reason = "Expired"


class ResourceVersionTooNew(ApiServerAnswer, Retryable):
    """The requested resource version is newer than the server's."""

    reason = "ResourceVersionTooLarge"


class TooManyRequests(ApiServerAnswer, Busy):
    reason = "TooManyRequests"


class EvictionBlocked(ApiServerAnswer, Busy):
    """A PodDisruptionBudget does not allow this eviction now."""

    reason = "DisruptionBudget"


class TimedOut(ApiServerAnswer, Unreachable):
    reason = "Timeout"


class Unavailable(ApiServerAnswer, Unreachable):
    reason = "ServiceUnavailable"


class ServerBroken(ApiServerAnswer, Retryable):
    reason = "InternalError"


class UnknownClientError(ApiServerAnswer, Invalid):
    """A 4xx that no other row matches."""

    reason = "Refused"


class StatusRow(NamedTuple):
    code: int
    reason: str
    cause: str
    raises: type[ApiServerAnswer]


TABLE = (
    StatusRow(400, "", "", KubeBadRequest),
    StatusRow(401, "", "", Unauthorized),
    StatusRow(403, "", "NamespaceTerminating", NamespaceTerminating),
    StatusRow(403, "", "", KubeForbidden),
    StatusRow(404, "", "", NotFound),
    StatusRow(405, "", "", NotAllowed),
    StatusRow(406, "", "", NotAcceptable),
    StatusRow(408, "", "", TimedOut),
    StatusRow(409, "AlreadyExists", "", AlreadyExists),
    StatusRow(409, "", "FieldManagerConflict", ApplyConflict),
    StatusRow(409, "", "", WriteConflict),
    StatusRow(410, "", "", Gone),
    StatusRow(413, "", "", TooLarge),
    StatusRow(415, "", "", UnsupportedMedia),
    StatusRow(422, "", "", InvalidObject),
    StatusRow(429, "", "DisruptionBudget", EvictionBlocked),
    StatusRow(429, "", "", TooManyRequests),
    StatusRow(500, "", "", ServerBroken),
    StatusRow(503, "", "", Unavailable),
    StatusRow(504, "", "ResourceVersionTooLarge", ResourceVersionTooNew),
    StatusRow(504, "", "", TimedOut),
)

# Kubernetes answers 500 to an apply that does not fit the schema of its kind.
NOT_OF_THE_SCHEMA = "failed to create typed patch object"

_STATUS = msgspec.json.Decoder(Status)
LONGEST_MESSAGE = 16_384


def error_for(status: Status) -> ApiServerAnswer:
    """The error of a Status."""
    if status.code == 500 and status.message.startswith(NOT_OF_THE_SCHEMA):
        return KubeBadRequest(status)
    causes = {cause.type for cause in status.causes}
    for row in TABLE:
        known = row.code == status.code and row.reason in ("", status.reason)
        if known and (row.cause in causes or not row.cause):
            return row.raises(status)
    return (ServerBroken if status.code >= 500 else UnknownClientError)(status)


def error_from(code: int, body: bytes, retry_after: str = "") -> ApiServerAnswer:
    """The error of a response with any body."""
    try:
        status = _STATUS.decode(body)
    except msgspec.DecodeError:
        status = Status(message=_text(code, body))
    if len(status.message) > LONGEST_MESSAGE:  # it reaches conditions, events and logs
        status = msgspec.structs.replace(status, message=f"{status.message[:LONGEST_MESSAGE]}…")
    seconds = retry_after.isdecimal() and len(retry_after) < 7
    if seconds and not status.retry_after_seconds:
        details = status.details or StatusDetails()
        details = msgspec.structs.replace(details, retry_after_seconds=int(retry_after))
        status = msgspec.structs.replace(status, details=details)
    return error_for(msgspec.structs.replace(status, code=code))


def _text(code: int, body: bytes) -> str:
    shown = " ".join(body[:200].decode(errors="replace").split())
    return f"the apiserver answered {code}: {shown}" if shown else ""
