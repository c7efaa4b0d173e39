"""The resource model of a custom resource version: its compiled schema."""

from functools import cached_property
from typing import Any

from moxwell.embedded.apiserver import jsonpath, merge_schema
from moxwell.embedded.apiserver.builtin.fields import as_text
from moxwell.embedded.apiserver.builtin.go_types import GoTypeMismatch, Read
from moxwell.embedded.apiserver.crd import pruning
from moxwell.embedded.apiserver.crd.composition import MISSING
from moxwell.embedded.apiserver.crd.validation import ValidationErrors, validator
from moxwell.embedded.apiserver.resources import Object
from moxwell.embedded.apiserver.status_errors import ErrorCause, bad_request


class CustomModel:
    """The resource model of one version of a custom resource."""

    has_generation = True

    def __init__(self, version: dict[str, Any], *, preserve: bool, read_meta: Read) -> None:
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        self.schema = schema
        self._read_meta = read_meta
        scale = (version.get("subresources") or {}).get("scale") or {}
        self._replicas = [p for p in scale.get("specReplicasPath", "").split(".") if p]
        self._status = "status" in (version.get("subresources") or {})
        self._prune = None if preserve or schema is None else pruning.pruner(schema, root=True)
        self._fill = None if schema is None else pruning.defaulter(schema)
        self._paths = {
            field["jsonPath"].removeprefix("."): jsonpath.compile(field["jsonPath"])
            for field in version.get("selectableFields") or ()
        }
        self.selectable = frozenset(self._paths)

    @cached_property
    def merge_schema(self) -> merge_schema.MergeSchema:
        return merge_schema.for_custom_resource(self.schema)

    @cached_property
    def _validate(self) -> Any:
        schema = dict(self.schema or {})
        properties = dict(schema.get("properties") or {})
        for name in ("apiVersion", "kind"):
            properties.pop(name, None)
        named = (properties.get("metadata") or {}).get("properties", {}).get("name")
        properties["metadata"] = {"type": "object", "properties": {"name": named} if named else {}}
        return validator({**schema, "properties": properties}, root=True)

    def decode(self, obj: Object, unknown: list[str] | None) -> Object:
        meta = obj.get("metadata")
        if meta is not None and not isinstance(meta, dict):
            raise bad_request("json: cannot unmarshal metadata into Go value of type v1.ObjectMeta")
        if self._prune is not None:
            self._prune(obj, "", unknown)
        try:
            obj["metadata"] = self._read_meta(meta or {}, "metadata", unknown)
        except GoTypeMismatch as error:
            raise GoTypeMismatch(error.message.replace(".metadata.", ".")) from None
        if unknown:
            unknown.sort()
        return obj

    def default(self, obj: Object) -> None:
        if self._fill is not None:
            self._fill(obj)

    def prepare(self, new: Object, old: Object | None, subresource: str) -> None:
        """Do nothing; the writer resets the status."""

    def validate(self, new: Object, old: Object | None, subresource: str) -> list[ErrorCause]:
        if self.schema is None:
            return []
        found = ValidationErrors()
        complete = new
        if subresource == "status" and self._status and old is not None and "status" in new:
            complete = {**old, "status": new.get("status")}
        self._validate(complete, "", found, MISSING if old is None else old)
        found.ask_rules()
        return found if subresource == "status" else found + self._scale_causes(new)

    def _scale_causes(self, new: Object) -> list[ErrorCause]:
        """Validate the values behind the scale subresource."""
        if not self._replicas:
            return []
        at: Any = new
        for part in self._replicas[:-1]:
            at = at.get(part, {})
            if not isinstance(at, dict):
                path = "." + ".".join(self._replicas)
                kind = {"str": "string", "int": "int64", "bool": "bool"}.get(
                    type(at).__name__, "slice"
                )
                text = (
                    f"{path} accessor error: {at} is of the type {kind}, expected"
                    f" map[string]interface{{}}"
                )
                return [ErrorCause("FieldValueInvalid", f"Invalid value: 0: {text}", path)]
        value = at.get(self._replicas[-1])
        if isinstance(value, int) and value < 0:
            path = "." + ".".join(self._replicas)
            text = f"Invalid value: {value}: should be a non-negative integer"
            return [ErrorCause("FieldValueInvalid", text, path)]
        return []

    def field_value(self, obj: Object, path: str) -> str:
        found = self._paths[path](obj)
        return as_text(found[0] if found else None, path)
