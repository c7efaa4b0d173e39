"""
Decodes the bodies of subresources and DeleteOptions by their Go types, with Go's errors.

These bodies are not stored, so no resource model decodes them.
"""

from dataclasses import dataclass
from typing import Any

from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.builtin.go_types import GoTypeMismatch, GoTypes

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BodyType:
    """The kind that an endpoint expects."""

    api_version: str
    kind: str
    go: str

    @property
    def internal(self) -> str:
        """The name of the type without its version, as conversion errors show it."""
        group = self.api_version.rpartition("/")[0].split(".")[0]
        return f"{group or 'core'}.{self.kind}"


EVICTION = BodyType("policy/v1", "Eviction", "k8s.io/api/policy/v1.Eviction")
TOKEN_REQUEST = BodyType(
    "authentication.k8s.io/v1", "TokenRequest", "k8s.io/api/authentication/v1.TokenRequest"
)
SCALE = BodyType("autoscaling/v1", "Scale", "k8s.io/api/autoscaling/v1.Scale")
BINDING = BodyType("v1", "Binding", "k8s.io/api/core/v1.Binding")
DELETE_OPTIONS = BodyType(
    "v1", "DeleteOptions", "k8s.io/apimachinery/pkg/apis/meta/v1.DeleteOptions"
)
_BY_SUBRESOURCE = {
    "eviction": EVICTION,
    "token": TOKEN_REQUEST,
    "scale": SCALE,
    "binding": BINDING,
}


def expected_kind(subresource: str, kind: str) -> str:
    """Return the kind that a body of the endpoint must have."""
    found = _BY_SUBRESOURCE.get(subresource)
    return kind if found is None else found.kind


def decode(types: GoTypes, wanted: BodyType, obj: Object) -> Object:
    """Decode a body of a subresource; raises for another kind and for fields of a wrong type."""
    version, kind = obj.get("apiVersion") or wanted.api_version, obj.get("kind") or wanted.kind
    short = version.rpartition("/")[2]
    prefix = f'{kind} in version "{short}" cannot be handled as a {wanted.kind}'
    if kind != wanted.kind:
        why = f"converting ({short}.{kind}) to ({wanted.internal}): unknown conversion"
        raise status_errors.bad_request(f"{prefix}: {why}")
    try:
        found: Object = types.struct(wanted.go)(obj, "", None)
    except GoTypeMismatch as error:
        raise status_errors.bad_request(f"{prefix}: {error.message}") from None
    return found


def decode_delete_options(types: GoTypes, obj: Object) -> Object:
    """Decode DeleteOptions, whose errors have no prefix; unset fields are absent."""
    version, kind = obj.get("apiVersion") or "", obj.get("kind") or "DeleteOptions"
    if kind != "DeleteOptions":
        raise status_errors.bad_request(
            f'no kind "{kind}" is registered for version "{version}" in scheme'
            ' "pkg/runtime/scheme.go:111"'
        )
    found: Object = types.struct(DELETE_OPTIONS.go)(obj, "", None)
    return {key: value for key, value in found.items() if value is not None}
