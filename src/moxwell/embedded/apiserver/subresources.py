"""
Handles subresources other than status, and create-only kinds: scale, eviction, binding, token,
finalize, reviews.

Writes go through the resource writer. exec, log, port-forward and the like are rejected as
unsupported.
"""

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from moxwell.embedded.apiserver import (
    jsonpatch,
    metadata,
    request_body,
    status_errors,
    typed_bodies,
)
from moxwell.embedded.apiserver.auth.reviews import AccessReviews
from moxwell.embedded.apiserver.auth.tokens import AUDIENCE, ServiceAccountTokens
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.deleter import Deleter
from moxwell.embedded.apiserver.object_cache import ObjectRecord
from moxwell.embedded.apiserver.patcher import APPLY, JSON_PATCH, Patcher
from moxwell.embedded.apiserver.pdb import STORE as BUDGETS
from moxwell.embedded.apiserver.pdb import is_ready, selector_of
from moxwell.embedded.apiserver.request_info import ApiCall
from moxwell.embedded.apiserver.scale import ScaleConverter
from moxwell.embedded.apiserver.writer import ResourceWriter

Object = dict[str, Any]
Body = Callable[[ApiCall], tuple[Object, list[str]]]
StatusAndObject = tuple[int, Object]
MAX_TOKEN_SECONDS = 2**32
UNSUPPORTED = ("attach", "exec", "log", "portforward", "proxy", "ephemeralcontainers", "resize")


class SubresourceHandler:
    """Handles subresources."""

    def __init__(
        self,
        core: ServerContext,
        writer: ResourceWriter,
        patcher: Patcher,
        deleter: Deleter,
        reviews: AccessReviews,
        tokens: ServiceAccountTokens,
    ) -> None:
        self._core, self._writer, self._patcher, self._deleter = core, writer, patcher, deleter
        self._reviews, self._tokens, self._scales = reviews, tokens, ScaleConverter()

    def handle(self, call: ApiCall, body: Body) -> StatusAndObject:
        subresource = call.subresource
        if not subresource:
            return self._review(call, body)
        if subresource.split("/")[0] in UNSUPPORTED and call.resource.kind in (
            "Pod",
            "Service",
            "Node",
        ):
            raise status_errors.not_implemented(f"{call.resource.plural}/{subresource}")
        if subresource not in call.resource.subresources:
            if call.resource.custom:
                raise status_errors.not_found(call.resource.plural, call.resource.group, call.name)
            raise status_errors.path_not_found()
        handle = getattr(self, f"_{subresource}")
        found: StatusAndObject = handle(call, body)
        return found

    def _review(self, call: ApiCall, body: Body) -> StatusAndObject:
        if call.verb != "create":
            raise status_errors.method_not_allowed()
        if call.resource.kind == "Binding":
            obj = self._typed(call, body, typed_bodies.BINDING)
            call.name = obj["metadata"].get("name", "")
            call.resource = self._core.registry.find("", "v1", "pods") or call.resource
            return self._bind(call, obj)
        obj = self._writer.decode(call, *body(call))
        answer = self._reviews.handle(call, obj)
        answer.setdefault("metadata", {})
        return 201, answer

    # scale

    def _scale(self, call: ApiCall, body: Body) -> StatusAndObject:
        record = self._writer.current_record(call)
        obj = self._writer.current(call, record)
        shown = self._scales.to_scale(call.resource, obj)
        if call.verb == "get":
            return 200, shown
        if call.verb == "patch":
            new = self._patched(call, copy.deepcopy(shown))
        elif call.verb == "update":
            new = self._typed(call, body, typed_bodies.SCALE)
        else:
            raise status_errors.method_not_allowed()
        wanted = self._wanted(call, record, new)
        changed = self._scales.set_replicas(call.resource, copy.deepcopy(obj), wanted)
        changed["metadata"].pop("resourceVersion", None)
        outcome = self._writer.replace(call, record, obj, changed)
        return 200, self._scales.to_scale(call.resource, outcome.object)

    def _patched(self, call: ApiCall, shown: Object) -> Object:
        kind = request_body.media_type(call.request.headers.get("content-type", ""))
        if kind == APPLY:
            given = request_body.decode_apply(call.request.body)
            return self._as_scale({**shown, "spec": given.get("spec") or {}})
        patch = request_body.decode_patch(call.request.body)
        try:
            made = (
                jsonpatch.apply_json_patch(shown, patch)
                if kind == JSON_PATCH
                else jsonpatch.apply_merge_patch(shown, patch)
            )
        except jsonpatch.PatchFailed as error:
            raise status_errors.bad_request(str(error)) from None
        return self._as_scale(made)

    def _as_scale(self, made: Any) -> Object:
        if not isinstance(made, dict):
            raise status_errors.bad_request("the patch result is not an object")
        return typed_bodies.decode(self._core.tables.types, typed_bodies.SCALE, made)

    def _typed(self, call: ApiCall, body: Body, wanted: typed_bodies.BodyType) -> Object:
        return typed_bodies.decode(self._core.tables.types, wanted, body(call)[0])

    def _wanted(self, call: ApiCall, record: ObjectRecord, scale: Object) -> int:
        meta = scale.get("metadata") or {}
        version = meta.get("resourceVersion")
        if version and version != str(record.revision):
            raise status_errors.object_modified(
                call.resource.plural, call.resource.group, call.name
            )
        wanted: int = (scale.get("spec") or {}).get("replicas", 0)
        if wanted < 0:
            if call.resource.custom and call.resource.scale is not None:
                text = f"Invalid value: {wanted}: should be a non-negative integer"
                cause = status_errors.ErrorCause(
                    "FieldValueInvalid", text, call.resource.scale.spec
                )
                raise status_errors.invalid(
                    call.resource.kind, call.resource.group, call.name, [cause]
                )
            text = f"Invalid value: {wanted}: must be greater than or equal to 0"
            cause = status_errors.ErrorCause("FieldValueInvalid", text, "spec.replicas")
            raise status_errors.invalid("Scale", "autoscaling", call.name, [cause])
        return wanted

    # pods

    def _eviction(self, call: ApiCall, body: Body) -> StatusAndObject:
        if call.verb != "create":
            raise status_errors.method_not_allowed()
        obj = self._typed(call, body, typed_bodies.EVICTION)
        if obj["metadata"].get("name") != call.name:
            raise status_errors.bad_request("name in URL does not match name in Eviction object")
        options = obj.get("deleteOptions") or {}
        if options.get("dryRun"):
            call.query = {**call.query, "dryRun": options["dryRun"][0]}
        record = self._writer.current_record(call)
        self._restrict(call, obj)
        self._consume_disruption(call, record)
        self._deleter.remove(call, record, options)
        made = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "code": 201,
        }
        return 201, made

    def _consume_disruption(self, call: ApiCall, record: ObjectRecord) -> None:
        """Use one disruption of the Pod's budget, or raise 429."""
        pod = record.object()
        if (pod.get("status") or {}).get("phase") in ("Pending", "Succeeded", "Failed"):
            return
        if pod["metadata"].get("deletionTimestamp"):
            return
        found = [
            b
            for b in self._core.cache.scan_staged(BUDGETS, f"{record.namespace}/")
            if selector_of((b.object().get("spec") or {}).get("selector")).matches(record.labels)
        ]
        if len(found) > 1:
            raise status_errors.internal(
                "This pod has more than one PodDisruptionBudget, which the eviction"
                " subresource does not support."
            )
        if found:
            self._consume_from_budget(call, found[0], pod)

    def _consume_from_budget(self, call: ApiCall, record: ObjectRecord, pod: Object) -> None:
        budget = record.object()
        status = budget.get("status") or {}
        remaining, healthy, wanted = (
            status.get(key, 0) for key in ("disruptionsAllowed", "currentHealthy", "desiredHealthy")
        )
        if not is_ready(pod) and healthy >= wanted > 0:
            return
        if remaining <= 0:
            text = (
                f"The disruption budget {record.name} needs {wanted} healthy pods and has"
                f" {healthy} currently"
            )
            cause = status_errors.ErrorCause("DisruptionBudget", text)
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            raise status_errors.too_many_requests(message, causes=[cause])
        resource = self._core.registry.hub(BUDGETS)
        if resource is not None and not call.dry_run:
            disrupted_pods = {
                **(status.get("disruptedPods") or {}),
                pod["metadata"]["name"]: self._core.now(),
            }
            budget["status"] = {
                **status,
                "disruptionsAllowed": remaining - 1,
                "disruptedPods": disrupted_pods,
            }
            self._core.put(resource, budget, record)

    def _binding(self, call: ApiCall, body: Body) -> StatusAndObject:
        if call.verb != "create":
            raise status_errors.method_not_allowed()
        return self._bind(call, self._typed(call, body, typed_bodies.BINDING))

    def _bind(self, call: ApiCall, binding: Object) -> StatusAndObject:
        record = self._writer.current_record(call)
        old, new = self._writer.current(call, record), self._writer.current(call, record)
        node = (binding.get("target") or {}).get("name", "")
        if not node:
            raise status_errors.unknown_error("target.name: Required value")
        given = binding.get("metadata", {}).get("uid")
        if given and given != record.uid:
            why = (
                f"Precondition failed: UID in precondition: {given}, UID in object meta:"
                f" {record.uid}"
            )
            raise status_errors.conflict("pods", "", call.name, why)
        bound = (old.get("spec") or {}).get("nodeName")
        if bound:
            why = f'pod {call.name} is already assigned to node "{bound}"'
            raise status_errors.conflict("pods/binding", "", call.name, why)
        new["spec"]["nodeName"] = node
        new["metadata"].setdefault("annotations", {}).update(
            binding.get("metadata", {}).get("annotations") or {}
        )
        if not new["metadata"]["annotations"]:
            del new["metadata"]["annotations"]
        status = new.setdefault("status", {})
        others = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        status["conditions"] = [*others, {**scheduled, "lastTransitionTime": self._core.now()}]
        if not call.dry_run:
            resource = call.resource
            self._core.put(resource, resource.to_hub(new), record)
        return 201, {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "code": 201,
        }

    def _restrict(self, call: ApiCall, obj: Object) -> None:
        """Check a create of a subresource against the restrictions of its user."""
        review = self._core.review(call, obj, None)
        self._writer.restrict(replace(review, namespace=call.namespace, name=call.name))

    # other subresources

    def _token(self, call: ApiCall, body: Body) -> StatusAndObject:
        if call.verb != "create":
            raise status_errors.method_not_allowed()
        request = self._typed(call, body, typed_bodies.TOKEN_REQUEST)
        spec = request.get("spec") or {}
        account = self._writer.current(call, self._writer.current_record(call))
        self._restrict(call, request)
        seconds = spec.get("expirationSeconds") or 3600
        if seconds < 600 or seconds > MAX_TOKEN_SECONDS:
            problem = "less than 10 minutes" if seconds < 600 else "larger than 2^32 seconds"
            text = f"Invalid value: {seconds}: may not specify a duration {problem}"
            cause = status_errors.ErrorCause("FieldValueInvalid", text, "spec.expirationSeconds")
            raise status_errors.invalid("TokenRequest", "authentication.k8s.io", "", [cause])
        audiences = spec.get("audiences") or [AUDIENCE]
        bound = self._bound(call, spec.get("boundObjectRef"))
        token, ends = self._tokens.sign(account, audiences, seconds, bound)
        until = metadata.timestamp(datetime.fromtimestamp(ends, UTC))
        made: Object = {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": call.name,
                "namespace": call.namespace,
                "uid": account["metadata"]["uid"],
                "creationTimestamp": self._core.now(),
            },
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": None},
            "status": {"token": token, "expirationTimestamp": until},
        }
        if bound is not None:
            made["spec"]["boundObjectRef"] = spec["boundObjectRef"]
        return 201, made

    def _bound(self, call: ApiCall, ref: Object | None) -> Object | None:
        if not ref:
            return None
        group_resource = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}.get(
            ref.get("kind", "")
        )
        if group_resource is None:
            raise status_errors.bad_request(
                f"cannot bind token to object of type {ref.get('apiVersion')},"
                f" Kind={ref.get('kind')}"
            )
        ref = {**ref, "name": ref.get("name", "")}
        key = ref["name"] if group_resource == "nodes" else f"{call.namespace}/{ref['name']}"
        record = self._core.cache.find(group_resource, key)
        if record is None:
            raise status_errors.not_found(group_resource, "", ref["name"])
        if ref.get("uid") and ref["uid"] != record.uid:
            why = (
                f"the UID in the bound object reference ({ref['uid']}) does not match the UID"
                " in record. The object might have been deleted and then recreated"
            )
            raise status_errors.conflict(group_resource, "", ref["name"], why)
        return {"kind": ref["kind"], "name": record.name, "uid": record.uid}

    def _finalize(self, call: ApiCall, body: Body) -> StatusAndObject:
        """Update a namespace's ``spec.finalizers``."""
        if call.verb != "update" or not re.match("Namespace$", call.resource.kind):
            raise status_errors.method_not_allowed()
        obj = self._writer.decode(call, *body(call))
        record = self._writer.current_record(call)
        old = self._writer.current(call, record)
        new = {**self._writer.current(call, record), "spec": obj.get("spec") or {}}
        new["metadata"].pop("resourceVersion", None)
        outcome = self._writer.replace(call, record, old, new)
        return 200, outcome.object
