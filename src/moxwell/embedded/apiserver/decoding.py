"""
Decodes request bodies into objects of a resource, with strict field validation.

Unknown and duplicate fields are an error in strict mode and warnings otherwise. The result is
defaulted and in the version of the request.
"""

import copy
from typing import Any

from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.object_cache import encode
from moxwell.embedded.apiserver.request_info import ApiCall
from moxwell.embedded.apiserver.resources import ServedResource

Object = dict[str, Any]
MAX_REPORTED = 100  # unknown and duplicate fields in one response, as in Go


class BodyDecoder:
    """Decodes objects from request bodies."""

    def __init__(self, core: ServerContext) -> None:
        self._core = core

    def decode(
        self,
        call: ApiCall,
        obj: Object,
        duplicates: list[str] | None = None,
        shared: Object | None = None,
    ) -> Object:
        """
        Decode and default an object; report unknown and duplicate fields.

        What ``obj`` shares with the decoded object ``shared`` is not decoded again.
        """
        resource = call.resource
        self._check_kind(call, obj)
        unknown: list[str] | None = None if call.validation == "Ignore" else []
        try:
            read = _decode(resource, obj, unknown, shared)
        except status_errors.StatusError as error:
            if error.code == 400:
                raise self._cannot_handle(call, error.message) from None
            raise
        read.setdefault("metadata", {})
        self.report(call, [*(duplicates or []), *(unknown or [])], len(duplicates or []))
        resource.model.default(read)
        return read

    def _wrong_kind(self, call: ApiCall, version: str, kind: str) -> status_errors.StatusError:
        """Build the error for a body of another kind or version."""
        resource = call.resource
        if resource.custom:
            text = (
                f"the API version in the data ({version}) does not match the expected API version"
                f" ({resource.api_version})"
            )
            return status_errors.bad_request(text)
        short = version.rpartition("/")[2]
        if self._core.registry.by_kind(version, kind) is None:
            why = (
                f'no kind "{kind}" is registered for version "{version}" in scheme'
                ' "pkg/runtime/scheme.go:111"'
            )
        else:
            inside = resource.group.split(".")[0] or "core"
            why = f"converting ({short}.{kind}) to ({inside}.{resource.kind}): unknown conversion"
        return status_errors.bad_request(
            f'{kind} in version "{version}" cannot be handled as a {resource.kind}: {why}'
        )

    def check_fields(self, call: ApiCall, obj: Object) -> None:
        """Report unknown fields and leave the object unchanged."""
        self._check_kind(call, obj)
        unknown: list[str] = []
        try:
            call.resource.model.decode(copy.deepcopy(obj), unknown)
        except status_errors.StatusError as error:
            raise self._cannot_handle(call, error.message) from None
        self.report(call, unknown, 0)

    def report(self, call: ApiCall, fields: list[str], duplicates: int) -> None:
        """Raise for duplicate and unknown fields in strict mode, else add warnings."""
        fields = fields[:MAX_REPORTED]
        texts = [
            f'duplicate field "{f}"' if at < duplicates else f'unknown field "{f}"'
            for at, f in enumerate(fields)
        ]
        if not texts or call.validation == "Ignore":
            return
        if call.validation == "Strict":
            raise self._cannot_handle(call, f"strict decoding error: {', '.join(texts)}")
        call.warnings += texts

    def _cannot_handle(self, call: ApiCall, why: str) -> status_errors.StatusError:
        resource = call.resource
        return status_errors.bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a'
            f" {resource.kind}: {why}"
        )

    def _check_kind(self, call: ApiCall, obj: Object) -> None:
        resource = call.resource
        version, kind = obj.get("apiVersion"), obj.get("kind")
        if not resource.custom and version is None and kind is None:
            obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind
            return
        if not kind:
            raise status_errors.bad_request(f"Object 'Kind' is missing in '{encode(obj).decode()}'")
        if version != resource.api_version or kind != resource.kind:
            raise self._wrong_kind(call, str(version), str(kind))
        if not isinstance(obj.get("metadata", {}), dict):
            raise status_errors.bad_request("metadata: expected an object")


def _decode(
    resource: ServedResource, obj: Object, unknown: list[str] | None, shared: Object | None
) -> Object:
    if shared is None:
        return resource.model.decode(obj, unknown)
    same = [key for key, value in obj.items() if value is shared.get(key)]
    if "metadata" not in same and obj.get("metadata") == shared["metadata"]:
        same.append("metadata")
    read = resource.model.decode({k: v for k, v in obj.items() if k not in same}, unknown)
    kept = {key: shared[key] for key in same}
    if "metadata" in kept:  # it is modified later
        kept["metadata"] = {key: copy.copy(value) for key, value in kept["metadata"].items()}
    return {**read, **kept}
