"""Decodes request bodies (JSON, YAML, protobuf) to plain values and reports duplicate keys."""

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec
import yaml

from moxwell.embedded.apiserver import status_errors

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
ACCEPTED = (JSON, YAML, PROTOBUF)
FromProtobuf = Callable[[bytes], dict[str, Any]]


class PlainLoader(yaml.CSafeLoader):
    """A YAML loader that keeps timestamps as strings, as Kubernetes does."""


PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


class UnrecognizedBody(status_errors.StatusError):
    """The body is not an object."""

    def __init__(self, why: str, body: bytes) -> None:
        shown = body[:30].decode(errors="replace") if body.startswith(b"{") else body[:30].hex()
        detail = f"couldn't get version/kind; json parse error: {why} ({shown or '<empty>'})"
        super().__init__(400, "BadRequest", detail)

    def named(self, kind: str) -> status_errors.StatusError:
        text = f"the object provided is unrecognized (must be of type {kind}): {self.message}"
        return status_errors.bad_request(text)


_BARE = re.compile(rb"^\s*\{\s*([^\s\"}])")


def _go_error_message(body: bytes) -> str:
    """Return the message of Go's JSON parser for common mistakes."""
    if (found := _BARE.match(body)) is not None:
        char = found[1].decode(errors="replace")
        return f"invalid character '{char}' looking for beginning of object key string"
    first = body.lstrip()[:1]
    if first and first not in b'{["-0123456789tfn':
        return (
            f"invalid character '{first.decode(errors='replace')}' looking for beginning of value"
        )
    return "unexpected end of JSON input"


def media_type(content_type: str) -> str:
    return content_type.split(";")[0].strip().lower()


def decode_body(
    body: bytes, content_type: str, from_protobuf: FromProtobuf, duplicates: list[str] | None = None
) -> dict[str, Any]:
    """Decode the object of a body; ``duplicates`` collects duplicate keys."""
    kind = media_type(content_type) or JSON
    if kind == PROTOBUF:
        return from_protobuf(body)
    if kind == JSON:
        value = decode_json(body, duplicates)
    elif kind in (YAML, "application/x-yaml", "text/yaml", "application/apply-patch+yaml"):
        value = decode_yaml(body)
    else:
        raise status_errors.unsupported_media(ACCEPTED)
    if not isinstance(value, dict):
        what = {"list": "array", "str": "string", "bool": "bool"}.get(
            type(value).__name__, "number"
        )
        go = (
            'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string'
            ' "json:\\"kind,omitempty\\"" }'
        )
        raise UnrecognizedBody(f"json: cannot unmarshal {what} into Go value of type {go}", body)
    return value


def decode_json(body: bytes, duplicates: list[str] | None = None) -> Any:
    try:
        if duplicates is None:
            return msgspec.json.decode(body)
        value = json.loads(body, object_pairs_hook=_pairs)
        return _plain(value, "", duplicates)
    except (msgspec.DecodeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UnrecognizedBody(_go_error_message(body), body) from error


def decode_yaml(body: bytes) -> Any:
    if body[:1] == b"{":  # JSON is YAML, and the usual case
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError:
            pass
    try:
        return yaml.load(body, Loader=PlainLoader)
    except yaml.YAMLError as error:
        text = str(error).replace("\n", " ")
        raise status_errors.bad_request(f"error converting YAML to JSON: yaml: {text}") from None


class _Pairs(list[tuple[str, Any]]):
    """The members of an object with duplicate keys."""


def _pairs(found: list[tuple[str, Any]]) -> Any:
    made = dict(found)
    return made if len(made) == len(found) else _Pairs(found)


def _plain(value: Any, path: str, duplicates: list[str]) -> Any:
    """Replace pair lists with objects (the last value wins) and collect duplicate paths."""
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, _ in value:
            at = f"{path}.{key}" if path else key
            if key in seen and at not in duplicates:
                duplicates.append(at)
            seen.add(key)
        value = dict(value)
    if isinstance(value, dict):
        for key, item in value.items():
            if item.__class__ in (dict, list, _Pairs):
                value[key] = _plain(item, f"{path}.{key}" if path else key, duplicates)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if item.__class__ in (dict, list, _Pairs):
                value[index] = _plain(item, f"{path}[{index}]", duplicates)
    return value
