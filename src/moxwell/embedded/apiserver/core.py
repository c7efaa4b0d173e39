"""
Core: what every verb needs, in one place. State, the way into it, who is served, time and hooks.
"""

from dataclasses import dataclass
from typing import Any

from moxwell.clock import Clock
from moxwell.embedded.apiserver import metadata, status_errors
from moxwell.embedded.apiserver.builtin.model import Tables
from moxwell.embedded.apiserver.commits import Commits
from moxwell.embedded.apiserver.hooks import Hooks, Review
from moxwell.embedded.apiserver.object_cache import Record, State
from moxwell.embedded.apiserver.request_info import Call
from moxwell.embedded.apiserver.resources import Face, Registry
from moxwell.embedded.apiserver.watches import Feeds

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Core:
    """Shared by all verbs of one store."""

    state: State
    commits: Commits
    feeds: Feeds
    registry: Registry
    clock: Clock
    hooks: Hooks
    tables: Tables

    def now(self) -> str:
        return metadata.timestamp(self.clock.now())

    def put(self, face: Face, hub: Object, previous: Record | None) -> Record:
        """Stage an object in its stored version."""
        record = self.commits.put(face.store, hub, previous)
        home = self.registry.hub(face.store)
        if home is not None and home.api_version == record.api_version:
            record.fresh = home.model
        return record

    def create(self, face: Face, obj: Object) -> Record:
        """Make an object of the store's own."""
        head = {"apiVersion": face.api_version, "kind": face.kind}
        made = face.model.read({**obj, **head}, None)
        face.model.default(made)
        metadata.born(made, self.now())
        if face.model.counts_generation:
            made["metadata"]["generation"] = 1
        face.model.prepare(made, None, "")
        return self.put(face, made, None)

    def seen(self, face: Face, record: Record) -> Object:
        """A record's object, fresh, in a face's version, without its resource version."""
        obj = face.between(record.object(), face.api_version)
        if face.custom and record.fresh is not face.model:
            obj = face.model.read(obj, None)
            face.model.default(obj)
        return obj

    def review(self, call: Call, new: Object | None, old: Object | None) -> Review:
        face = call.face
        meta = (new or old or {}).get("metadata", {})
        return Review(
            operation="DELETE" if new is None else "CREATE" if old is None else "UPDATE",
            group=face.group,
            version=face.version,
            plural=face.plural,
            kind=face.kind,
            namespace=meta.get("namespace", ""),
            name=meta.get("name", ""),
            subresource=call.sub,
            user=call.user,
            dry_run=call.dry_run,
            object=new,
            old=old,
        )

    def require_namespace(self, call: Call, name: str) -> None:
        """New objects need a namespace that is there to stay."""
        face = call.face
        if face.terminating:
            why = "create not allowed while custom resource definition is terminating"
            raise status_errors.forbidden(face.plural, face.group, name, why)
        if not face.namespaced or face.plural == "localsubjectaccessreviews":
            return
        record = self.state.find_staged("namespaces", call.namespace)
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
            cause = status_errors.Cause("NamespaceTerminating", text, "metadata.namespace")
            raise status_errors.forbidden(face.plural, face.group, name, why, causes=[cause])

    def may_vanish(self, face: Face, obj: Object) -> bool:
        """Whether an object without finalizers that is being deleted goes at once."""
        if face.kind == "Namespace" and not face.group:
            return not (obj.get("spec") or {}).get("finalizers")
        return not obj["metadata"].get("deletionGracePeriodSeconds") or face.kind != "Pod"
