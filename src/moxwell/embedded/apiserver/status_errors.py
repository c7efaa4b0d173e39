"""
Failure responses (``metav1.Status``) with the reasons and messages of kube-apiserver.

Handlers raise them and :mod:`moxwell.embedded.apiserver.server` converts them to responses. There
is one class; the constructors below list all failures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from moxwell.embedded.apiserver.storage.rows import RowName
from moxwell.errors import Terminal


@dataclass(frozen=True, slots=True)
class ErrorCause:
    """A cause of a Status: one invalid field."""

    reason: str
    message: str
    field: str = ""

    def as_dict(self) -> dict[str, str]:
        cause = {"reason": self.reason, "message": self.message}
        return {**cause, "field": self.field} if self.field else cause


class StatusError(Terminal):
    """The request fails with a ``Status``."""

    reason = "Refused"

    def __init__(
        self, code: int, why: str, message: str, *, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.why, self.message = code, why, message
        self.plain = False  # respond in plain text
        self.warnings: tuple[str, ...] = ()  # sent with the response
        self.details = None if details is None else dict(details)

    def status(self) -> dict[str, Any]:
        """Build the Status."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.why:
            body["reason"] = self.why
        if self.details is not None:
            body["details"] = self.details
        return {**body, "code": self.code}


SHOWN = 200  # characters of an input that an error repeats


def shortened(text: str) -> str:
    """Shorten an input that an error repeats."""
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def qualified(plural: str, group: str) -> str:
    """Return the qualified resource name: ``deployments.apps``."""
    return f"{plural}.{group}" if group else plural


def _details(name: str, group: str, kind: str, **more: Any) -> dict[str, Any]:
    found = {"name": name, "group": group, "kind": kind, **more}
    return {key: value for key, value in found.items() if value}


def not_found(plural: str, group: str, name: str) -> StatusError:
    text = f'{qualified(plural, group)} "{name}" not found'
    return StatusError(404, "NotFound", text, details=_details(name, group, plural))


def already_exists(plural: str, group: str, name: str) -> StatusError:
    text = f'{qualified(plural, group)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", text, details=_details(name, group, plural))


def conflict(plural: str, group: str, name: str, why: str, *, kind: str = "") -> StatusError:
    text = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return StatusError(409, "Conflict", text, details=_details(name, group, kind or plural))


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def object_modified(plural: str, group: str, name: str) -> StatusError:
    return conflict(plural, group, name, MODIFIED)


class QualifiedResource(Protocol):
    """The part of a served resource that error messages need."""

    @property
    def group(self) -> str: ...
    @property
    def plural(self) -> str: ...
    @property
    def custom(self) -> bool: ...


_PLACES = {"services": "services/specs", "endpoints": "services/endpoints", "nodes": "minions"}


def wrong_uid(
    resource: QualifiedResource, key: str, name: str, wanted: str, found: str
) -> StatusError:
    """A uid precondition failed."""
    place = (
        f"{resource.group}/{resource.plural}"
        if resource.custom
        else _PLACES.get(resource.plural, resource.plural)
    )
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{place}/{key}, ResourceVersion: 0,"
        f" AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object"
        f" meta: {found}"
    )
    return conflict(resource.plural, resource.group, name, why)


def invalid(kind: str, group: str, name: str, causes: Sequence[ErrorCause]) -> StatusError:
    """Build the 422; the message names each error once, the causes list all."""
    texts = list(dict.fromkeys(f"{c.field}: {c.message}" if c.field else c.message for c in causes))
    text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    if not causes:
        text = "<nil>"
    shown = f"{kind}.{group}" if group else kind
    details = _details(name, group, kind, causes=[c.as_dict() for c in causes])
    return StatusError(422, "Invalid", f'{shown} "{name}" is invalid: {text}', details=details)


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(
    plural: str, group: str, name: str, why: str, *, causes: Sequence[ErrorCause] = ()
) -> StatusError:
    shown = qualified(plural, group)
    text = f'{shown} "{name}" is forbidden: {why}' if name else f"{shown} is forbidden: {why}"
    details = _details(name, group, plural, causes=[c.as_dict() for c in causes])
    return StatusError(403, "Forbidden", text, details=details)


def forbidden_path(why: str) -> StatusError:
    return StatusError(403, "Forbidden", f"forbidden: {why}", details={})


def path_not_found() -> StatusError:
    text = "the server could not find the requested resource"
    return StatusError(404, "NotFound", text, details={})


def page_not_found() -> StatusError:
    error = StatusError(404, "NotFound", "404 page not found\n")
    error.plain = True
    return error


def method_not_allowed() -> StatusError:
    text = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", text, details={})


def not_acceptable(accepted: Sequence[str]) -> StatusError:
    text = f"406: Not Acceptable\n\nAvailable representations: {', '.join(accepted)}"
    return StatusError(406, "NotAcceptable", text, details={})


def unsupported_media(accepted: Sequence[str]) -> StatusError:
    text = (
        "the body of the request was in an unknown format - "
        f"accepted media types include: {', '.join(accepted)}"
    )
    return StatusError(415, "UnsupportedMediaType", text)


def unknown_error(message: str) -> StatusError:
    """An error that kube-apiserver reports without a reason."""
    return StatusError(500, "", message)


def patch_rejected() -> StatusError:
    text = "the server rejected our request due to an error in our request"
    return StatusError(422, "Invalid", text, details={})


def resource_expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def too_large_version(asked: int, current: int) -> StatusError:
    text = f"Too large resource version: {asked}, current: {current}"
    cause = ErrorCause("ResourceVersionTooLarge", "Too large resource version")
    details = {"causes": [cause.as_dict()], "retryAfterSeconds": 1}
    return StatusError(504, "Timeout", f"Timeout: {text}", details=details)


def too_many_requests(
    message: str, *, causes: Sequence[ErrorCause] = (), after: int = 0
) -> StatusError:
    details: dict[str, Any] = {"causes": [c.as_dict() for c in causes]} if causes else {}
    if after:
        details["retryAfterSeconds"] = after
    return StatusError(429, "TooManyRequests", message, details=details)


def not_implemented(what: str) -> StatusError:
    text = f"the embedded API server does not support {what}"
    return StatusError(501, "NotImplemented", text)


def internal(message: str) -> StatusError:
    text = f"Internal error occurred: {message}"
    details = {"causes": [{"message": message}]}
    return StatusError(500, "InternalError", text, details=details)


def unreadable(name: RowName) -> StatusError:
    """The stored object is damaged; it is neither served nor overwritten."""
    return internal(f"the stored object {name} is damaged: stop Moxwell and run `moxwell repair`")


def storage_failed(message: str) -> StatusError:
    """
    The disk rejected the write and nothing was stored.

    There is no Retry-After: kubectl would retry silently for minutes.
    """
    details = {"causes": [{"reason": "StorageFailed", "message": message}]}
    return StatusError(
        507, "InternalError", f"the write was not stored: {message}", details=details
    )
