"""
Handles create and update, from the decoded object to the staged record.

An object is defaulted, converted to the storage version, prepared, mutated, validated, admitted and
staged. An update that changes nothing stores nothing. Patches compute a whole object and continue
in the same way. There is no ``await`` in between, so the current object cannot change.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moxwell.embedded.apiserver import metadata, status_errors
from moxwell.embedded.apiserver.apply import tracking
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.decoding import BodyDecoder
from moxwell.embedded.apiserver.hooks import AdmissionAttributes
from moxwell.embedded.apiserver.object_cache import ObjectRecord, key_of
from moxwell.embedded.apiserver.request_info import ApiCall, parse_revision
from moxwell.embedded.apiserver.status_errors import ErrorCause
from moxwell.errors import MoxwellError

Object = dict[str, Any]
STATUS_LIKE = ("status", "approval")  # endpoints that write only the status
CREATE_ON_UPDATE = frozenset(
    [
        "Lease",
        "Event",
        "Endpoints",
        "Service",
        "LimitRange",
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
        "PodTemplate",
    ]
)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a write: the object in the requested version, and its record unless dry run."""

    code: int
    object: Object
    record: ObjectRecord | None


def _set_csr_user(call: ApiCall, obj: Object) -> None:
    """Set the user fields of a CertificateSigningRequest from the authenticated user."""
    spec, user = obj.setdefault("spec", {}), call.user
    for name in ("username", "uid", "groups", "extra"):
        spec.pop(name, None)
    spec["username"] = user.name
    spec["groups"] = list(user.groups)
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra.items()}


class ResourceWriter(BodyDecoder):
    """Stages writes; the caller waits for the commit."""

    def __init__(self, core: ServerContext) -> None:
        super().__init__(core)
        self.removed: Callable[[ApiCall, Object, ObjectRecord], WriteResult] | None = (
            None  # set by the deleter
        )
        self.check_escalation: Callable[[ApiCall, Object, Object | None], None] = _no_update_check
        self.restrict: Callable[[AdmissionAttributes], None] = _no_restriction
        self.add_defaults: Callable[[ApiCall, Object], None] = _no_check
        self.apply_limit_ranges: Callable[[ApiCall, Object], None] = _no_check
        self.check_quota: Callable[[ApiCall, Object, Object | None], None] = _no_update_check

    # create

    def create(self, call: ApiCall, obj: Object) -> WriteResult:
        """Create a decoded object."""
        core, meta = self._core, obj["metadata"]
        if meta.get("resourceVersion") not in (None, "", "0"):
            raise status_errors.unknown_error(
                "resourceVersion should not be set on objects to be created"
            )
        self.set_location(call, obj)
        core.require_namespace(call, meta.get("name", ""))
        metadata.set_creation_metadata(obj, core.now())
        tracking.on_create(core, call, obj)
        return self.finish_create(call, obj)

    def create_applied(self, call: ApiCall, obj: Object) -> WriteResult:
        """Create an object by server-side apply; its managers are already computed."""
        self.set_location(call, obj)
        self._core.require_namespace(call, call.name)
        metadata.set_creation_metadata(obj, self._core.now())
        return self.finish_create(call, obj)

    def finish_create(self, call: ApiCall, obj: Object) -> WriteResult:
        """Finish the creation of an object with metadata and managers."""
        core, resource = self._core, call.resource
        if resource.model.has_generation:
            obj["metadata"]["generation"] = 1
        if resource.custom and resource.status:
            obj.pop("status", None)
        self.apply_limit_ranges(call, obj)
        resource.model.prepare(obj, None, call.subresource)
        if resource.kind == "CertificateSigningRequest":
            _set_csr_user(call, obj)
        self.add_defaults(call, obj)
        obj = self._mutate(call, obj, None)
        self.check_escalation(call, obj, None)
        self._check(call, obj, None)
        self.check_quota(call, obj, None)
        hub = resource.to_hub(_copy_if(resource, obj))
        key = key_of(hub["metadata"].get("namespace", ""), hub["metadata"]["name"])
        if core.cache.find_staged(resource.group_resource, key) is not None:
            raise self._already_exists(call, key)
        self._admit(call, obj, None)
        if call.dry_run:
            return WriteResult(201, obj, None)
        record = core.put(resource, hub, None)
        return WriteResult(201, _with_resource_version(obj, record), record)

    def _already_exists(self, call: ApiCall, key: str) -> status_errors.StatusError:
        resource, record = (
            call.resource,
            self._core.cache.find_staged(call.resource.group_resource, key),
        )
        name = key.rpartition("/")[2]
        error = status_errors.already_exists(resource.plural, resource.group, name)
        if record is not None and record.object()["metadata"].get("deletionTimestamp"):
            error.message = f"object is being deleted: {error.message}"
        return error

    def set_location(self, call: ApiCall, obj: Object) -> None:
        meta, resource = obj["metadata"], call.resource
        given = meta.get("namespace") or ""
        if resource.namespaced:
            if given and given != call.namespace:
                raise status_errors.bad_request(
                    "the namespace of the provided object does not match the namespace sent"
                    " on the request"
                )
            meta["namespace"] = call.namespace
        else:
            meta.pop("namespace", None)  # as kube-apiserver does
        if (
            call.name
            and meta.get("name")
            and meta["name"] != call.name
            and call.subresource != "eviction"
        ):
            raise status_errors.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL"
                f" ({call.name})"
            )

    # update

    def current_record(self, call: ApiCall) -> ObjectRecord:
        """Find the record that a write starts from."""
        resource = call.resource
        key = key_of(call.namespace if resource.namespaced else "", call.name)
        record = self._core.cache.find_staged(resource.group_resource, key)
        if record is None:
            raise status_errors.not_found(resource.plural, resource.group, call.name)
        return record

    def current(self, call: ApiCall, record: ObjectRecord) -> Object:
        """Decode the current object in the requested version."""
        return self._core.decode(call.resource, record)

    def update(self, call: ApiCall, obj: Object) -> WriteResult:
        """Update with a decoded object."""
        self.set_location(call, obj)
        try:
            record = self.current_record(call)
        except status_errors.StatusError:
            if call.resource.kind not in CREATE_ON_UPDATE or call.subresource:
                raise
            obj["metadata"].setdefault("name", call.name)
            return self.create(call, obj)
        if not obj["metadata"].get("name"):
            raise status_errors.bad_request(
                f"the name of the object ({call.name} based on URL) was undeterminable: name"
                " must be"
                " provided"
            )
        if not obj["metadata"].get("resourceVersion") and call.resource.custom:
            cause = metadata.invalid_value(
                0, "must be specified for an update", "metadata.resourceVersion"
            )
            raise status_errors.invalid(
                call.resource.plural, call.resource.group, call.name, [cause]
            )
        return self.replace(call, record, self.current(call, record), obj)

    def replace(
        self,
        call: ApiCall,
        record: ObjectRecord,
        old: Object,
        new: Object,
        *,
        track: bool = True,
    ) -> WriteResult:
        """Replace ``old`` by ``new``, both in the requested version."""
        resource = call.resource
        self._precondition(call, record, new)
        wrong = metadata.immutable_causes(new, old)
        metadata.keep_system_fields(new, old)
        if track:
            tracking.on_update(self._core, call, old, new)
        self._reset_fields(call, new, old)
        resource.model.prepare(new, old, call.subresource)
        self._bump_generation(call, new, old)
        new = self._mutate(call, new, old)
        self.check_escalation(call, new, old)
        self._check(call, new, old, wrong)
        if differs(new, old):
            self.check_quota(call, new, old)
        self._admit(call, new, old)
        tracking.keep_times(new, old)
        return self._store(call, record, old, new)

    def _precondition(self, call: ApiCall, record: ObjectRecord, new: Object) -> None:
        resource, meta = call.resource, new["metadata"]
        given = meta.pop("resourceVersion", "") or ""
        if given:
            try:
                parse_revision(given)
            except status_errors.StatusError as error:
                raise status_errors.unknown_error(error.message) from None
        if given not in ("", "0") and given != str(record.revision):
            raise status_errors.object_modified(resource.plural, resource.group, call.name)
        if meta.get("uid") and meta["uid"] != record.uid and call.verb == "update":
            raise status_errors.wrong_uid(resource, record.key, call.name, meta["uid"], record.uid)

    def _reset_fields(self, call: ApiCall, new: Object, old: Object) -> None:
        """Reset the fields that the endpoint does not write: status, or everything else."""
        if not call.resource.status or call.subresource not in ("", *STATUS_LIKE):
            return
        if call.subresource in STATUS_LIKE:
            status, meta = new.get("status"), new["metadata"]
            for key in list(new):
                del new[key]
            new.update(old)
            fields = meta.get("managedFields")
            kept = dict(old["metadata"])
            if not call.resource.custom:
                names = (
                    ("annotations",)
                    if call.resource.kind == "Deployment"
                    else ("labels", "annotations")
                )
                kept.update({k: meta[k] for k in names if k in meta})
            new["metadata"] = kept
            if fields is not None:
                kept["managedFields"] = fields
            _assign(new, "status", status)
        else:
            _assign(new, "status", old.get("status"))

    def _bump_generation(self, call: ApiCall, new: Object, old: Object) -> None:
        resource = call.resource
        if not resource.model.has_generation or call.subresource in STATUS_LIKE:
            return
        if differs(new, old, status=resource.status or not resource.custom):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def _store(self, call: ApiCall, record: ObjectRecord, old: Object, new: Object) -> WriteResult:
        core, resource = self._core, call.resource
        going = new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers")
        if going and self.removed is not None and core.can_delete_now(resource, new):
            return self.removed(call, new, record)
        before = dict(old["metadata"])
        before.pop("resourceVersion", None)
        if {**new, "metadata": new["metadata"]} == {**old, "metadata": before}:
            new["metadata"]["resourceVersion"] = str(record.revision)
            return WriteResult(200, new, None if call.dry_run else record)
        if call.dry_run:
            new["metadata"]["resourceVersion"] = str(record.revision)
            return WriteResult(200, new, None)
        hub = resource.to_hub(_copy_if(resource, new))
        made = core.put(resource, hub, record)
        return WriteResult(200, _with_resource_version(new, made), made)

    # hooks and validation

    def _mutate(self, call: ApiCall, new: Object, old: Object | None) -> Object:
        review = self._core.review(call, new, old)
        self.restrict(review)
        try:
            made = self._core.hooks.mutate(review)
        except status_errors.StatusError:
            raise
        except MoxwellError as error:
            raise denied_error(error) from error
        return made

    def _admit(self, call: ApiCall, new: Object, old: Object | None) -> None:
        admit(self._core, call, self._core.review(call, new, old))

    def _check(
        self, call: ApiCall, new: Object, old: Object | None, wrong: list[ErrorCause] | None = None
    ) -> None:
        resource = call.resource
        found = 2 * list(wrong or [])  # kube-apiserver validates twice
        generic = resource.custom or resource.kind == "CustomResourceDefinition"
        found += metadata.validate(new, old, resource.kind, custom=generic)
        if generic:
            call.warnings += metadata.finalizer_warnings(new, old)
        found += resource.model.validate(new, old, call.subresource)
        if found:
            name = new["metadata"].get("name", "")
            group = "" if resource.kind == "Event" else resource.group
            raise status_errors.invalid(resource.kind, group, name, found)


def _no_check(call: ApiCall, obj: Object) -> None:
    """Do nothing; the default for optional checks."""


def _no_update_check(call: ApiCall, new: Object, old: Object | None) -> None:
    """Do nothing; the default for optional checks."""


def _no_restriction(review: AdmissionAttributes) -> None:
    """Do nothing; the default without restrictions."""


def admit(core: ServerContext, call: ApiCall, review: AdmissionAttributes) -> None:
    """Run the admission hook and collect its warnings."""
    try:
        call.warnings += core.hooks.admit(review)
    except status_errors.StatusError:
        raise
    except MoxwellError as error:
        raise denied_error(error) from error


def _with_resource_version(obj: Object, record: ObjectRecord) -> Object:
    """Return the object in the written version with its new resource version."""
    obj["metadata"]["resourceVersion"] = str(record.revision)
    return obj


def denied_error(error: MoxwellError) -> status_errors.StatusError:
    text = f'admission webhook "moxwell" denied the request: {error}'
    return status_errors.StatusError(403, "Forbidden", text)


def _assign(obj: Object, key: str, value: Any) -> None:
    if value is None:
        obj.pop(key, None)
    else:
        obj[key] = value


def _copy_if(resource: Any, obj: Object) -> Object:
    """Copy the object if a converter could modify it."""
    return (
        obj if resource.api_version == resource.hub else {**obj, "metadata": dict(obj["metadata"])}
    )


def differs(new: Object, old: Object, *, status: bool = True) -> bool:
    """Report whether anything but metadata (and a separate status) changed."""
    skip = ("metadata", "status" if status else "", "apiVersion", "kind")
    keys = (set(new) | set(old)).difference(skip)
    return any(new.get(key) != old.get(key) for key in keys)
