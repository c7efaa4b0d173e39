"""
Decodes request bodies (JSON, YAML, protobuf) to plain values and reports duplicate keys.

Whatever a body contains, the result is a value within the limits or a Status error.
"""

from collections.abc import Callable
from typing import Any

from moxwell.embedded.apiserver import json_input, limits, status_errors, yaml_input
from moxwell.embedded.apiserver.json_input import MalformedJson
from moxwell.embedded.apiserver.limits import TooDeep
from moxwell.embedded.apiserver.yaml_input import MalformedYaml

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
ACCEPTED = (JSON, YAML, PROTOBUF)
YAML_TYPES = (YAML, "application/x-yaml", "text/yaml", "application/apply-patch+yaml")
FromProtobuf = Callable[[bytes], dict[str, Any]]
HINT_BYTES = 30
_GO_OBJECT = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string'
    ' "json:\\"kind,omitempty\\"" }'
)


class UnrecognizedBody(status_errors.StatusError):
    """The body is not an object."""

    def __init__(self, why: str, body: bytes) -> None:
        super().__init__(400, "BadRequest", why)
        head = body[:HINT_BYTES]
        shown = head.decode(errors="replace") if body.startswith(b"{") else head.hex()
        self._hint = shown + " ..." if len(body) > HINT_BYTES else shown or "<empty>"

    def named(self, kind: str) -> status_errors.StatusError:
        text = f"the object provided is unrecognized (must be of type {kind}): {self.message}"
        return status_errors.bad_request(f"{text} ({self._hint})")


def _json_error(why: str, body: bytes) -> UnrecognizedBody:
    return UnrecognizedBody(f"couldn't get version/kind; json parse error: {why}", body)


def media_type(content_type: str) -> str:
    return content_type.split(";")[0].strip().lower()


def decode_body(
    body: bytes, content_type: str, from_protobuf: FromProtobuf, duplicates: list[str] | None = None
) -> dict[str, Any]:
    """Decode the object of a body; ``duplicates`` collects duplicate keys."""
    limits.check_body_size(body)
    kind = media_type(content_type) or JSON
    if kind == PROTOBUF:
        return from_protobuf(body)
    if kind == JSON:
        value = decode_json(body, duplicates)
    elif kind in YAML_TYPES:
        value = decode_yaml(body)
    else:
        raise status_errors.unsupported_media(ACCEPTED)
    if value is None:
        return {}
    if not isinstance(value, dict):
        why = f"json: cannot unmarshal {json_kind(value)} into Go value of type {_GO_OBJECT}"
        raise _json_error(why, body)
    for name in ("apiVersion", "kind"):
        given = value.get(name, "")
        if given is not None and not isinstance(given, str):
            why = f"json: cannot unmarshal {json_kind(given)} into Go struct field .{name} of type"
            raise _json_error(f"{why} string", body)
    return value


def json_kind(value: Any) -> str:
    """Return Go's word for the kind of a JSON value."""
    kinds = {"list": "array", "str": "string", "bool": "bool", "dict": "object"}
    return kinds.get(type(value).__name__, "number")


def decode_json(body: bytes, duplicates: list[str] | None = None) -> Any:
    try:
        return json_input.decode(body, duplicates)
    except (MalformedJson, TooDeep) as error:
        raise _json_error(str(error), body) from None


def decode_patch(body: bytes) -> Any:
    """Decode a JSON, merge or strategic merge patch."""
    try:
        return json_input.decode(body)
    except (MalformedJson, TooDeep) as error:
        raise status_errors.bad_request(f"error decoding patch: {error}") from None


def decode_yaml(body: bytes) -> Any:
    """Decode YAML; JSON is YAML, and the usual case."""
    try:
        return _json_or_yaml(body)
    except (MalformedYaml, MalformedJson, TooDeep) as error:
        raise UnrecognizedBody(f"yaml: {error}", body) from None


def decode_apply(body: bytes) -> dict[str, Any]:
    """Decode the configuration of a server-side apply."""
    try:
        value = _json_or_yaml(body)
    except (MalformedYaml, MalformedJson, TooDeep) as error:
        raise status_errors.bad_request(f"error decoding YAML: yaml: {error}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise status_errors.bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot"
            f" unmarshal {json_kind(value)} into Go value of type map[string]interface {{}}"
        )
    return value


def _json_or_yaml(body: bytes) -> Any:
    limits.check_body_size(body)
    if body[:1] == b"{":
        try:
            return json_input.decode(body)
        except MalformedJson:
            pass
    value = yaml_input.decode(body)
    limits.check_value(value)  # aliases can make paths longer than the body
    return value
