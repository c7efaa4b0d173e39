"""
Serves the part of OpenAPI v2 that kubectl reads: the query parameters of PATCH, in protobuf.

Definitions are omitted: since 1.29 kubectl takes schemas from v3 and reads v2 only for kinds that
v3 lacks (a ``List``, an unserved kind).
"""

from collections.abc import Iterable

from moxwell.embedded.apiserver.resources import ServedResource

CONTENT_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_QUERY = ("dryRun", "fieldManager", "fieldValidation", "force")


def _number(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def _field(number: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _number(number << 3 | 2) + _number(len(data)) + data


def _parameter(name: str) -> bytes:
    """Encode a query parameter (QueryParameterSubSchema in NonBodyParameter in Parameter)."""
    query = _field(2, "query") + _field(4, name) + _field(6, "string")
    return _field(8, _field(1, _field(2, _field(3, query))))


def _operation(resource: ServedResource) -> bytes:
    kind = f'group: "{resource.group}"\nkind: {resource.kind}\nversion: {resource.version}\n'
    extension = _field(1, "x-kubernetes-group-version-kind") + _field(2, _field(2, kind))
    return b"".join(_parameter(name) for name in _QUERY) + _field(13, extension)


def _path(resource: ServedResource) -> bytes:
    root = (
        f"/apis/{resource.group}/{resource.version}"
        if resource.group
        else f"/api/{resource.version}"
    )
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    name = f"{root}{scope}/{resource.plural}/{{name}}"
    return _field(2, _field(1, name) + _field(2, _field(8, _operation(resource))))


def document(resources: Iterable[ServedResource]) -> bytes:
    """Encode the document."""
    paths = b"".join(_path(resource) for resource in resources if "patch" in resource.verbs)
    info = _field(1, "Kubernetes") + _field(2, "v1.36.3")
    return _field(1, "2.0") + _field(2, info) + _field(8, paths)
