"""
Subresources other than status, and kinds that are only asked: scale, eviction, binding, token,
finalize, reviews.

Each is a function from a call to an answer; those that write go through the writer like
everybody else. exec, logs, port-forward and the like are refused by name.
"""

import copy
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from moxwell.embedded.apiserver import jsonpatch, metadata, request_body, status_errors
from moxwell.embedded.apiserver.auth.reviews import Reviews
from moxwell.embedded.apiserver.auth.tokens import AUDIENCE, Tokens
from moxwell.embedded.apiserver.core import Core
from moxwell.embedded.apiserver.deleter import Remover
from moxwell.embedded.apiserver.object_cache import Record
from moxwell.embedded.apiserver.patcher import APPLY, JSON_PATCH, Patcher
from moxwell.embedded.apiserver.pdb import STORE as BUDGETS
from moxwell.embedded.apiserver.pdb import is_ready, selector_of
from moxwell.embedded.apiserver.request_info import Call
from moxwell.embedded.apiserver.scale import Scales
from moxwell.embedded.apiserver.writer import Writer

Object = dict[str, Any]
Body = Callable[[Call], tuple[Object, list[str]]]
Answer = tuple[int, Object]
REFUSED = ("attach", "exec", "log", "portforward", "proxy", "ephemeralcontainers", "resize")


class Subresources:
    """Answers everything below an object but its status."""

    def __init__(
        self,
        core: Core,
        writer: Writer,
        patcher: Patcher,
        remover: Remover,
        reviews: Reviews,
        tokens: Tokens,
    ) -> None:
        self._core, self._writer, self._patcher, self._remover = core, writer, patcher, remover
        self._reviews, self._tokens, self._scales = reviews, tokens, Scales()

    def serve(self, call: Call, body: Body) -> Answer:
        sub = call.sub
        if not sub:
            return self._ask(call, body)
        if sub.split("/")[0] in REFUSED and call.face.kind in ("Pod", "Service", "Node"):
            raise status_errors.not_implemented(f"{call.face.plural}/{sub}")
        if sub not in call.face.subs:
            if call.face.custom:
                raise status_errors.not_found(call.face.plural, call.face.group, call.name)
            raise status_errors.no_such_path()
        serve = getattr(self, f"_{sub}")
        found: Answer = serve(call, body)
        return found

    def _ask(self, call: Call, body: Body) -> Answer:
        if call.verb != "create":
            raise status_errors.method_not_allowed()
        if call.face.kind == "Binding":
            obj, _ = body(call)
            call.name = obj.get("metadata", {}).get("name", "")
            call.face = self._core.registry.find("", "v1", "pods") or call.face
            return self._bind(call, obj)
        obj = self._writer.understood(call, *body(call))
        answer = self._reviews.answer(call, obj)
        answer.setdefault("metadata", {})
        return 201, answer

    # -- scale

    def _scale(self, call: Call, body: Body) -> Answer:
        record = self._writer.live(call)
        obj = self._writer.seen(call, record)
        shown = self._scales.of(call.face, obj)
        if call.verb == "get":
            return 200, shown
        if call.verb == "patch":
            new = self._patched(call, copy.deepcopy(shown))
        elif call.verb == "update":
            new, _ = body(call)
        else:
            raise status_errors.method_not_allowed()
        wanted = self._wanted(call, record, new)
        changed = self._scales.put(call.face, copy.deepcopy(obj), wanted)
        changed["metadata"].pop("resourceVersion", None)
        outcome = self._writer.replace(call, record, obj, changed)
        return 200, self._scales.of(call.face, outcome.object)

    def _patched(self, call: Call, shown: Object) -> Object:
        kind = request_body.media_type(call.request.headers.get("content-type", ""))
        if kind == APPLY:
            given = request_body.read_yaml(call.request.body)
            return {**shown, "spec": given.get("spec") or {}}
        patch = request_body.read_json(call.request.body)
        try:
            made = (
                jsonpatch.apply(shown, patch)
                if kind == JSON_PATCH
                else jsonpatch.merge(shown, patch)
            )
        except jsonpatch.PatchFailed as error:
            raise status_errors.bad_request(str(error)) from None
        found: Object = made
        return found

    def _wanted(self, call: Call, record: Record, scale: Object) -> int:
        meta = scale.get("metadata") or {}
        version = meta.get("resourceVersion")
        if version and version != str(record.revision):
            raise status_errors.stale(call.face.plural, call.face.group, call.name)
        wanted = (scale.get("spec") or {}).get("replicas", 0)
        if not isinstance(wanted, int) or isinstance(wanted, bool):
            raise status_errors.bad_request(
                "json: cannot unmarshal into Go struct field ScaleSpec.spec.replicas of type int32"
            )
        if wanted < 0:
            if call.face.custom and call.face.scale is not None:
                text = f"Invalid value: {wanted}: should be a non-negative integer"
                cause = status_errors.Cause("FieldValueInvalid", text, call.face.scale.spec)
                raise status_errors.invalid(call.face.kind, call.face.group, call.name, [cause])
            text = f"Invalid value: {wanted}: must be greater than or equal to 0"
            cause = status_errors.Cause("FieldValueInvalid", text, "spec.replicas")
            raise status_errors.invalid("Scale", "autoscaling", call.name, [cause])
        return wanted

    # -- pods

    def _eviction(self, call: Call, body: Body) -> Answer:
        if call.verb != "create":
            raise status_errors.method_not_allowed()
        obj, _ = body(call)
        named = (obj.get("metadata") or {}).get("name")
        if named and named != call.name:
            raise status_errors.bad_request("name in URL does not match name in Eviction object")
        options = obj.get("deleteOptions") or {}
        if options.get("dryRun"):
            call.query = {**call.query, "dryRun": options["dryRun"][0]}
        record = self._writer.live(call)
        self._spend(call, record)
        self._remover.remove(call, record, options)
        made = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "code": 201,
        }
        return 201, made

    def _spend(self, call: Call, record: Record) -> None:
        """Take one disruption out of the Pod's budget, or refuse."""
        pod = record.object()
        if (pod.get("status") or {}).get("phase") in ("Pending", "Succeeded", "Failed"):
            return
        if pod["metadata"].get("deletionTimestamp"):
            return
        found = [
            b
            for b in self._core.state.scan_staged(BUDGETS, f"{record.namespace}/")
            if selector_of((b.object().get("spec") or {}).get("selector")).matches(record.labels)
        ]
        if len(found) > 1:
            raise status_errors.internal(
                "This pod has more than one PodDisruptionBudget, which the eviction"
                " subresource does not support."
            )
        if found:
            self._take(call, found[0], pod)

    def _take(self, call: Call, record: Record, pod: Object) -> None:
        budget = record.object()
        status = budget.get("status") or {}
        left, healthy, wanted = (
            status.get(key, 0) for key in ("disruptionsAllowed", "currentHealthy", "desiredHealthy")
        )
        if not is_ready(pod) and healthy >= wanted > 0:
            return
        if left <= 0:
            text = (
                f"The disruption budget {record.name} needs {wanted} healthy pods and has"
                f" {healthy} currently"
            )
            cause = status_errors.Cause("DisruptionBudget", text)
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            raise status_errors.too_many(message, causes=[cause])
        face = self._core.registry.hub(BUDGETS)
        if face is not None and not call.dry_run:
            gone = {
                **(status.get("disruptedPods") or {}),
                pod["metadata"]["name"]: self._core.now(),
            }
            budget["status"] = {**status, "disruptionsAllowed": left - 1, "disruptedPods": gone}
            self._core.put(face, budget, record)

    def _binding(self, call: Call, body: Body) -> Answer:
        if call.verb != "create":
            raise status_errors.method_not_allowed()
        return self._bind(call, body(call)[0])

    def _bind(self, call: Call, binding: Object) -> Answer:
        record = self._writer.live(call)
        old, new = self._writer.seen(call, record), self._writer.seen(call, record)
        node = (binding.get("target") or {}).get("name", "")
        if not node:
            raise status_errors.unknown("target.name: Required value")
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
            face = call.face
            self._core.put(face, face.to_hub(new), record)
        return 201, {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "code": 201,
        }

    # -- the rest

    def _token(self, call: Call, body: Body) -> Answer:
        if call.verb != "create":
            raise status_errors.method_not_allowed()
        request, _ = body(call)
        spec = request.get("spec") or {}
        account = self._writer.seen(call, self._writer.live(call))
        seconds = spec.get("expirationSeconds") or 3600
        if seconds < 600:
            text = f"Invalid value: {seconds}: may not specify a duration less than 10 minutes"
            cause = status_errors.Cause("FieldValueInvalid", text, "spec.expirationSeconds")
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

    def _bound(self, call: Call, ref: Object | None) -> Object | None:
        if not ref:
            return None
        store = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}.get(ref.get("kind", ""))
        if store is None:
            raise status_errors.bad_request(
                f"cannot bind token to object of type {ref.get('apiVersion')},"
                f" Kind={ref.get('kind')}"
            )
        key = ref["name"] if store == "nodes" else f"{call.namespace}/{ref['name']}"
        record = self._core.state.find(store, key)
        if record is None:
            raise status_errors.not_found(store, "", ref["name"])
        if ref.get("uid") and ref["uid"] != record.uid:
            why = (
                f"the UID in the bound object reference ({ref['uid']}) does not match the UID"
                " in record. The object might have been deleted and then recreated"
            )
            raise status_errors.conflict(store, "", ref["name"], why)
        return {"kind": ref["kind"], "name": record.name, "uid": record.uid}

    def _finalize(self, call: Call, body: Body) -> Answer:
        """A namespace's own finalizers."""
        if call.verb != "update" or not re.match("Namespace$", call.face.kind):
            raise status_errors.method_not_allowed()
        obj = self._writer.understood(call, *body(call))
        record = self._writer.live(call)
        old = self._writer.seen(call, record)
        new = {**self._writer.seen(call, record), "spec": obj.get("spec") or {}}
        new["metadata"].pop("resourceVersion", None)
        outcome = self._writer.replace(call, record, old, new)
        return 200, outcome.object
