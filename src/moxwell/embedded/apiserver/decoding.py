"""
What was sent, understood: a body becomes an object its model knows, or is refused in the right
words.

Unknown and duplicate fields are an error when validation is strict, else warnings. The object
comes out defaulted, in the version of the face it was sent to.
"""

import copy
from typing import Any

from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.core import Core
from moxwell.embedded.apiserver.object_cache import encode
from moxwell.embedded.apiserver.request_info import Call

Object = dict[str, Any]


class Understanding:
    """Reads objects out of bodies."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def understood(self, call: Call, obj: Object, twice: list[str] | None = None) -> Object:
        """The object as its model knows it, defaulted; unknown fields refused or warned of."""
        face = call.face
        self._is_of(call, obj)
        unknown: list[str] | None = None if call.validation == "Ignore" else []
        try:
            read = face.model.read(obj, unknown)
        except status_errors.Refused as refused:
            if refused.code == 400:
                raise self._unreadable(call, refused.message) from None
            raise
        read.setdefault("metadata", {})
        self.report(call, [*(twice or []), *(unknown or [])], len(twice or []))
        face.model.default(read)
        return read

    def _foreign(self, call: Call, version: str, kind: str) -> status_errors.Refused:
        """A body of another kind or version."""
        face = call.face
        if face.custom:
            text = (
                f"the API version in the data ({version}) does not match the expected API version"
                f" ({face.api_version})"
            )
            return status_errors.bad_request(text)
        short = version.rpartition("/")[2]
        if self._core.registry.by_kind(version, kind) is None:
            why = (
                f'no kind "{kind}" is registered for version "{version}" in scheme'
                ' "pkg/runtime/scheme.go:111"'
            )
        else:
            inside = face.group.split(".")[0] or "core"
            why = f"converting ({short}.{kind}) to ({inside}.{face.kind}): unknown conversion"
        return status_errors.bad_request(
            f'{kind} in version "{version}" cannot be handled as a {face.kind}: {why}'
        )

    def understood_only(self, call: Call, obj: Object) -> None:
        """Read, to refuse or warn, and leave the object as it is."""
        self._is_of(call, obj)
        unknown: list[str] = []
        try:
            call.face.model.read(copy.deepcopy(obj), unknown)
        except status_errors.Refused as refused:
            raise self._unreadable(call, refused.message) from None
        self.report(call, unknown, 0)

    def report(self, call: Call, fields: list[str], twice: int) -> None:
        """Duplicate and unknown fields: an error when strict, else warnings."""
        texts = [
            f'duplicate field "{f}"' if at < twice else f'unknown field "{f}"'
            for at, f in enumerate(fields)
        ]
        if not texts or call.validation == "Ignore":
            return
        if call.validation == "Strict":
            raise self._unreadable(call, f"strict decoding error: {', '.join(texts)}")
        call.warnings += texts

    def _unreadable(self, call: Call, why: str) -> status_errors.Refused:
        face = call.face
        return status_errors.bad_request(
            f'{face.kind} in version "{face.version}" cannot be handled as a {face.kind}: {why}'
        )

    def _is_of(self, call: Call, obj: Object) -> None:
        face = call.face
        version, kind = obj.get("apiVersion"), obj.get("kind")
        if not face.custom and version is None and kind is None:
            obj["apiVersion"], obj["kind"] = face.api_version, face.kind
            return
        if not kind:
            raise status_errors.bad_request(f"Object 'Kind' is missing in '{encode(obj).decode()}'")
        if version != face.api_version or kind != face.kind:
            raise self._foreign(call, str(version), str(kind))
        if not isinstance(obj.get("metadata", {}), dict):
            raise status_errors.bad_request("metadata: expected an object")
