"""
The components that all request handlers share: cache, committer, watch caches, registry, clock,
hooks.
"""

from dataclasses import dataclass
from typing import Any

from moxwell.clock import Clock
from moxwell.embedded.apiserver import metadata, status_errors
from moxwell.embedded.apiserver.builtin.model import BuiltinTypeData
from moxwell.embedded.apiserver.commits import Committer
from moxwell.embedded.apiserver.hooks import AdmissionAttributes, Hooks
from moxwell.embedded.apiserver.object_cache import ObjectCache, ObjectRecord
from moxwell.embedded.apiserver.request_info import ApiCall
from moxwell.embedded.apiserver.resources import ResourceRegistry, ServedResource
from moxwell.embedded.apiserver.watches import WatchCaches

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The shared components of one API server."""

    cache: ObjectCache
    committer: Committer
    watch_caches: WatchCaches
    registry: ResourceRegistry
    clock: Clock
    hooks: Hooks
    tables: BuiltinTypeData

    def now(self) -> str:
        return metadata.timestamp(self.clock.now())

    def put(
        self, resource: ServedResource, hub: Object, previous: ObjectRecord | None
    ) -> ObjectRecord:
        """Stage an object in its storage version."""
        record = self.committer.put(resource.group_resource, hub, previous)
        home = self.registry.hub(resource.group_resource)
        if home is not None and home.api_version == record.api_version:
            record.decoded_by = home.model
        return record

    def create(self, resource: ServedResource, obj: Object) -> ObjectRecord:
        """Create an object on behalf of the server."""
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        made = resource.model.decode({**obj, **head}, None)
        resource.model.default(made)
        metadata.set_creation_metadata(made, self.now())
        if resource.model.has_generation:
            made["metadata"]["generation"] = 1
        resource.model.prepare(made, None, "")
        return self.put(resource, made, None)

    def decode(self, resource: ServedResource, record: ObjectRecord) -> Object:
        """Decode a record into the version of the resource."""
        obj = resource.between(record.object(), resource.api_version)
        if resource.custom and record.decoded_by is not resource.model:
            obj = resource.model.decode(obj, None)
            resource.model.default(obj)
        return obj

    def review(self, call: ApiCall, new: Object | None, old: Object | None) -> AdmissionAttributes:
        resource = call.resource
        meta = (new or old or {}).get("metadata", {})
        return AdmissionAttributes(
            operation="DELETE" if new is None else "CREATE" if old is None else "UPDATE",
            group=resource.group,
            version=resource.version,
            plural=resource.plural,
            kind=resource.kind,
            namespace=meta.get("namespace", ""),
            name=meta.get("name", ""),
            subresource=call.subresource,
            user=call.user,
            dry_run=call.dry_run,
            object=new,
            old=old,
        )

    def require_namespace(self, call: ApiCall, name: str) -> None:
        """Raise unless the namespace exists and is not terminating."""
        resource = call.resource
        if resource.terminating:
            why = "create not allowed while custom resource definition is terminating"
            raise status_errors.forbidden(resource.plural, resource.group, name, why)
        if not resource.namespaced or resource.plural == "localsubjectaccessreviews":
            return
        record = self.cache.find_staged("namespaces", call.namespace)
        if record is None:
            raise status_errors.not_found("namespaces", "", call.namespace)
        if b'"deletionTimestamp"' in record.body and record.object()["metadata"].get(
            "deletionTimestamp"
        ):
            why = (
                f"unable to create new content in namespace {call.namespace} because it is"
                " being terminated"
            )
            text = f"namespace {call.namespace} is being terminated"
            cause = status_errors.ErrorCause("NamespaceTerminating", text, "metadata.namespace")
            raise status_errors.forbidden(
                resource.plural, resource.group, name, why, causes=[cause]
            )

    def can_delete_now(self, resource: ServedResource, obj: Object) -> bool:
        """Report whether a deleted object without finalizers can be removed at once."""
        if resource.kind == "Namespace" and not resource.group:
            return not (obj.get("spec") or {}).get("finalizers")
        return not obj["metadata"].get("deletionGracePeriodSeconds") or resource.kind != "Pod"
