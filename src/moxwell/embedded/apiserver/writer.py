"""
Create, update and patch. From the body to the staged record, without a pause in between.

One object goes: read by its model, defaulted, converted to the stored version, prepared,
mutated, checked, admitted, staged. What equals the live object stores nothing and tells nobody.
Patches produce a whole object out of the live one and then take the same way. ``await``-free:
the live object cannot change.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moxwell.embedded.apiserver import metadata, status_errors
from moxwell.embedded.apiserver.apply import tracking
from moxwell.embedded.apiserver.core import Core
from moxwell.embedded.apiserver.decoding import Understanding
from moxwell.embedded.apiserver.hooks import Review
from moxwell.embedded.apiserver.object_cache import Record, key_of
from moxwell.embedded.apiserver.request_info import Call
from moxwell.embedded.apiserver.status_errors import Cause
from moxwell.errors import MoxwellError

Object = dict[str, Any]
STATUS_LIKE = ("status", "approval")  # endpoints that write status alone
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
class Outcome:
    """What a write left: the object in the face's version; its record, but for dry runs."""

    code: int
    object: Object
    record: Record | None


def _signed_by(call: Call, obj: Object) -> None:
    """Who asks for a certificate is what was proven, never what is written."""
    spec, user = obj.setdefault("spec", {}), call.user
    for name in ("username", "uid", "groups", "extra"):
        spec.pop(name, None)
    spec["username"] = user.name
    spec["groups"] = list(user.groups)
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra.items()}


class Writer(Understanding):
    """Stages writes; the caller settles them."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self.removed: Callable[[Call, Object, Record], Outcome] | None = None  # set by the remover
        self.guard: Callable[[Call, Object], None] = _nothing
        self.fill: Callable[[Call, Object], None] = _nothing
        self.default: Callable[[Call, Object], None] = _nothing  # of the namespace
        self.ration: Callable[[Call, Object, Object | None], None] = _unlimited

    # -- create

    def create(self, call: Call, obj: Object) -> Outcome:
        """``obj`` is already understood."""
        core, meta = self._core, obj["metadata"]
        if meta.get("resourceVersion") not in (None, "", "0"):
            raise status_errors.unknown(
                "resourceVersion should not be set on objects to be created"
            )
        self.place(call, obj)
        core.require_namespace(call, meta.get("name", ""))
        metadata.born(obj, core.now())
        tracking.on_create(core, call, obj)
        return self.finish_create(call, obj)

    def create_applied(self, call: Call, obj: Object) -> Outcome:
        """The first apply of an object: its managers are known already."""
        self.place(call, obj)
        self._core.require_namespace(call, call.name)
        metadata.born(obj, self._core.now())
        return self.finish_create(call, obj)

    def finish_create(self, call: Call, obj: Object) -> Outcome:
        """From an object with metadata and owners on."""
        core, face = self._core, call.face
        if face.model.counts_generation:
            obj["metadata"]["generation"] = 1
        if face.custom and face.status:
            obj.pop("status", None)
        self.default(call, obj)
        face.model.prepare(obj, None, call.sub)
        if face.kind == "CertificateSigningRequest":
            _signed_by(call, obj)
        self.fill(call, obj)
        obj = self._mutated(call, obj, None)
        self._check(call, obj, None)
        self.guard(call, obj)
        self.ration(call, obj, None)
        hub = face.to_hub(_copy_if(face, obj))
        key = key_of(hub["metadata"].get("namespace", ""), hub["metadata"]["name"])
        if core.state.find_staged(face.store, key) is not None:
            raise self._exists(call, key)
        self._admit(call, obj, None)
        if call.dry_run:
            return Outcome(201, obj, None)
        record = core.put(face, hub, None)
        return Outcome(201, _numbered(obj, record), record)

    def _exists(self, call: Call, key: str) -> status_errors.Refused:
        face, record = call.face, self._core.state.find_staged(call.face.store, key)
        name = key.rpartition("/")[2]
        refused = status_errors.already_exists(face.plural, face.group, name)
        if record is not None and record.object()["metadata"].get("deletionTimestamp"):
            refused.message = f"object is being deleted: {refused.message}"
        return refused

    def place(self, call: Call, obj: Object) -> None:
        meta, face = obj["metadata"], call.face
        given = meta.get("namespace") or ""
        if face.namespaced:
            if given and given != call.namespace:
                raise status_errors.bad_request(
                    "the namespace of the provided object does not match the namespace sent"
                    " on the request"
                )
            meta["namespace"] = call.namespace
        else:
            meta.pop("namespace", None)
            if given:
                raise status_errors.bad_request(
                    "the namespace of the provided object does not match the namespace sent"
                    " on the request"
                )
        if call.name and meta.get("name") and meta["name"] != call.name and call.sub != "eviction":
            raise status_errors.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL"
                f" ({call.name})"
            )

    # -- update

    def live(self, call: Call) -> Record:
        """The object a write starts from."""
        face = call.face
        key = key_of(call.namespace if face.namespaced else "", call.name)
        record = self._core.state.find_staged(face.store, key)
        if record is None:
            raise status_errors.not_found(face.plural, face.group, call.name)
        return record

    def seen(self, call: Call, record: Record) -> Object:
        """The live object, fresh, in the face's version."""
        return self._core.seen(call.face, record)

    def update(self, call: Call, obj: Object) -> Outcome:
        """PUT: ``obj`` is understood."""
        self.place(call, obj)
        try:
            record = self.live(call)
        except status_errors.Refused:
            if call.face.kind not in CREATE_ON_UPDATE or call.sub:
                raise
            obj["metadata"].setdefault("name", call.name)
            return self.create(call, obj)
        if not obj["metadata"].get("name"):
            raise status_errors.bad_request(
                f"the name of the object ({call.name} based on URL) was undeterminable: name"
                " must be"
                " provided"
            )
        if not obj["metadata"].get("resourceVersion") and call.face.custom:
            cause = metadata.invalid_value(
                0, "must be specified for an update", "metadata.resourceVersion"
            )
            raise status_errors.invalid(call.face.plural, call.face.group, call.name, [cause])
        return self.replace(call, record, self.seen(call, record), obj)

    def replace(
        self,
        call: Call,
        record: Record,
        old: Object,
        new: Object,
        *,
        track: bool = True,
    ) -> Outcome:
        """Put ``new`` in the place of ``old``, both in the face's version."""
        face = call.face
        self._precondition(call, record, new)
        wrong = metadata.immutable(new, old)
        metadata.kept(new, old)
        if track:
            tracking.on_update(self._core, call, old, new)
        self._isolate(call, new, old)
        face.model.prepare(new, old, call.sub)
        self._count(call, new, old)
        new = self._mutated(call, new, old)
        self._check(call, new, old, wrong)
        if differs(new, old):
            self.guard(call, new)
            self.ration(call, new, old)
        self._admit(call, new, old)
        tracking.keep_times(new, old)
        return self._store(call, record, old, new)

    def _precondition(self, call: Call, record: Record, new: Object) -> None:
        face, meta = call.face, new["metadata"]
        given = meta.pop("resourceVersion", "") or ""
        if given and not given.isdigit():
            raise status_errors.unknown(f'strconv.ParseUint: parsing "{given}": invalid syntax')
        if given not in ("", "0") and given != str(record.revision):
            raise status_errors.stale(face.plural, face.group, call.name)
        if meta.get("uid") and meta["uid"] != record.uid and call.verb == "update":
            raise status_errors.wrong_uid(face, record.key, call.name, meta["uid"], record.uid)

    def _isolate(self, call: Call, new: Object, old: Object) -> None:
        """The status endpoint writes status, the main one everything else."""
        if not call.face.status or call.sub not in ("", *STATUS_LIKE):
            return
        if call.sub in STATUS_LIKE:
            status, meta = new.get("status"), new["metadata"]
            for key in list(new):
                del new[key]
            new.update(old)
            fields = meta.get("managedFields")
            kept = dict(old["metadata"])
            if not call.face.custom:
                names = (
                    ("annotations",)
                    if call.face.kind == "Deployment"
                    else ("labels", "annotations")
                )
                kept.update({k: meta[k] for k in names if k in meta})
            new["metadata"] = kept
            if fields is not None:
                kept["managedFields"] = fields
            _assign(new, "status", status)
        else:
            _assign(new, "status", old.get("status"))

    def _count(self, call: Call, new: Object, old: Object) -> None:
        face = call.face
        if not face.model.counts_generation or call.sub in STATUS_LIKE:
            return
        if differs(new, old, status=face.status or not face.custom):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def _store(self, call: Call, record: Record, old: Object, new: Object) -> Outcome:
        core, face = self._core, call.face
        going = new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers")
        if going and self.removed is not None and core.may_vanish(face, new):
            return self.removed(call, new, record)
        before = dict(old["metadata"])
        before.pop("resourceVersion", None)
        if {**new, "metadata": new["metadata"]} == {**old, "metadata": before}:
            new["metadata"]["resourceVersion"] = str(record.revision)
            return Outcome(200, new, None if call.dry_run else record)
        if call.dry_run:
            new["metadata"]["resourceVersion"] = str(record.revision)
            return Outcome(200, new, None)
        hub = face.to_hub(_copy_if(face, new))
        made = core.put(face, hub, record)
        return Outcome(200, _numbered(new, made), made)

    # -- hooks and checks

    def _mutated(self, call: Call, new: Object, old: Object | None) -> Object:
        review = self._core.review(call, new, old)
        try:
            made = self._core.hooks.mutate(review)
        except status_errors.Refused:
            raise
        except MoxwellError as error:
            raise denied(error) from error
        return made

    def _admit(self, call: Call, new: Object, old: Object | None) -> None:
        admit(self._core, call, self._core.review(call, new, old))

    def _check(
        self, call: Call, new: Object, old: Object | None, wrong: list[Cause] | None = None
    ) -> None:
        face = call.face
        found = 2 * list(wrong or [])  # a genuine apiserver looks twice
        generic = face.custom or face.kind == "CustomResourceDefinition"
        found += metadata.check(new, old, face.kind, custom=generic)
        if generic:
            call.warnings += metadata.finalizer_warnings(new, old)
        found += face.model.check(new, old, call.sub)
        if found:
            name = new["metadata"].get("name", "")
            group = "" if face.kind == "Event" else face.group
            raise status_errors.invalid(face.kind, group, name, found)


def _nothing(call: Call, obj: Object) -> None:
    """No guard, nothing to fill in."""


def _unlimited(call: Call, new: Object, old: Object | None) -> None:
    """No quota, no limits."""


def admit(core: Core, call: Call, review: Review) -> None:
    """Ask the hook; its warnings go with the answer."""
    try:
        call.warnings += core.hooks.admit(review)
    except status_errors.Refused:
        raise
    except MoxwellError as error:
        raise denied(error) from error


def _numbered(obj: Object, record: Record) -> Object:
    """The object as its writer sees it: in the version it was written in, with its new number."""
    obj["metadata"]["resourceVersion"] = str(record.revision)
    return obj


def denied(error: MoxwellError) -> status_errors.Refused:
    text = f'admission webhook "moxwell" denied the request: {error}'
    return status_errors.Refused(403, "Forbidden", text)


def _assign(obj: Object, key: str, value: Any) -> None:
    if value is None:
        obj.pop(key, None)
    else:
        obj[key] = value


def _copy_if(face: Any, obj: Object) -> Object:
    """A converter may change what it is given, and the writer is still shown its own version."""
    return obj if face.api_version == face.hub else {**obj, "metadata": dict(obj["metadata"])}


def differs(new: Object, old: Object, *, status: bool = True) -> bool:
    """Whether anything but metadata (and a status with an endpoint of its own) changed."""
    skip = ("metadata", "status" if status else "", "apiVersion", "kind")
    keys = (set(new) | set(old)).difference(skip)
    return any(new.get(key) != old.get(key) for key in keys)
