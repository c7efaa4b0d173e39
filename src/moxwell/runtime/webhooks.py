"""
Answers AdmissionReview and ConversionReview requests: bytes in, bytes out.

The review functions are pure; the socket is in :mod:`moxwell.runtime.http`. A rejection is a
``Deny`` or a raised ``Terminal``, whose message the user sees. Any other error is a 500, and the
failure policy decides.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from moxwell.errors import Invalid, Terminal

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Admission:
    """An admission request."""

    operation: str  # CREATE, UPDATE, DELETE, CONNECT
    kind: str
    group: str
    version: str
    namespace: str
    name: str
    object: Json | None
    old: Json | None
    user: str
    subresource: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Allow:
    """Allow the request, with optional JSON patch operations and warnings."""

    patch: tuple[Json, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deny:
    """Reject the request with a message."""

    message: str
    code: int = 422
    reason: str = "Invalid"


Admit = Callable[[Admission], Allow | Deny]
Convert = Callable[[Json, str], Json]  # an object and the requested apiVersion


class _Gvk(Struct):
    group: str = ""
    version: str = ""
    kind: str = ""


class _User(Struct):
    username: str = ""


class _AdmissionRequest(Struct, rename="camel"):
    uid: str
    operation: str
    kind: _Gvk = field(default_factory=_Gvk)
    namespace: str = ""
    name: str = ""
    sub_resource: str = ""
    object: Json | None = None
    old_object: Json | None = None
    user_info: _User = field(default_factory=_User)
    dry_run: bool | None = None


class _AdmissionReview(Struct, rename="camel"):
    api_version: str
    request: _AdmissionRequest


class _ConversionRequest(Struct, rename="camel"):
    uid: str
    desired_api_version: str = field(name="desiredAPIVersion")
    objects: list[Raw]


class _ConversionReview(Struct, rename="camel"):
    api_version: str
    request: _ConversionRequest


class BadReview(Invalid):
    """The request body is not a review."""


@dataclass(frozen=True, slots=True)
class Webhooks:
    """The review functions by path; conversions are served at ``/convert``."""

    admissions: Mapping[str, Admit]
    convert: Convert | None = None

    def answers(self, path: str) -> bool:
        """Whether the path is served."""
        return path in self.admissions or (path == "/convert" and self.convert is not None)

    def answer(self, path: str, body: bytes) -> bytes | None:
        """The response, or None for an unknown path."""
        if path == "/convert" and self.convert is not None:
            return review_conversion(body, self.convert)
        admit = self.admissions.get(path)
        return None if admit is None else review_admission(body, admit)


def review_admission(body: bytes, admit: Admit) -> bytes:
    """Answer one AdmissionReview."""
    review = _decode(body, _AdmissionReview)
    asked = review.request
    try:
        verdict = admit(_admission(asked))
    except Terminal as error:
        verdict = Deny(str(error), reason=error.reason)
    response = {"uid": asked.uid, **_verdict(verdict)}
    return _encode(review.api_version, "AdmissionReview", response)


def review_conversion(body: bytes, convert: Convert) -> bytes:
    """
    Answer one ConversionReview; one failing object fails the whole review, as the API requires.
    """
    review = _decode(body, _ConversionReview)
    wanted = review.request.desired_api_version
    response: Json = {"uid": review.request.uid}
    try:
        objects = [convert(msgspec.json.decode(raw), wanted) for raw in review.request.objects]
        response |= {"convertedObjects": objects, "result": {"status": "Success"}}
    except Terminal as error:
        response |= {"convertedObjects": [], "result": {"status": "Failure", "message": str(error)}}
    return _encode(review.api_version, "ConversionReview", response)


def _admission(asked: _AdmissionRequest) -> Admission:
    return Admission(
        operation=asked.operation,
        kind=asked.kind.kind,
        group=asked.kind.group,
        version=asked.kind.version,
        namespace=asked.namespace,
        name=asked.name,
        object=asked.object,
        old=asked.old_object,
        user=asked.user_info.username,
        subresource=asked.sub_resource,
        dry_run=bool(asked.dry_run),
    )


def _verdict(verdict: Allow | Deny) -> Json:
    if isinstance(verdict, Deny):
        status = {"message": verdict.message, "code": verdict.code, "reason": verdict.reason}
        return {"allowed": False, "status": {"status": "Failure", **status}}
    out: Json = {"allowed": True}
    if verdict.warnings:
        out["warnings"] = list(verdict.warnings)
    if verdict.patch:
        out["patchType"] = "JSONPatch"
        out["patch"] = base64.b64encode(msgspec.json.encode(verdict.patch)).decode()
    return out


def _decode(body: bytes, review: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=review)
    except msgspec.DecodeError as error:
        raise BadReview(f"not a review: {error}") from error


def _encode(api_version: str, kind: str, response: Json) -> bytes:
    return msgspec.json.encode({"apiVersion": api_version, "kind": kind, "response": response})
