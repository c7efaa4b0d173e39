"""
The ResourceQuota admission plugin and the quota status.

Usage is counted from all objects, staged ones included, so two writes in one commit cannot both use
the last unit. kube-apiserver counts in the quota's status instead, and rejects requests until the
controller manager has set that status.
"""

from typing import Any

from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.object_cache import ObjectRecord
from moxwell.embedded.apiserver.quota import resource_list, usage
from moxwell.embedded.apiserver.quota.resource_list import ZERO, ResourceList
from moxwell.embedded.apiserver.request_info import ApiCall

Object = dict[str, Any]
STORE = "resourcequotas"
COUNTED_ON_UPDATE = ("services", "persistentvolumeclaims")


class ResourceQuotaController:
    """Checks quotas and updates their status."""

    def __init__(self, core: ServerContext) -> None:
        self._core = core

    def check(self, call: ApiCall, new: Object, old: Object | None) -> None:
        """Reject an object that exceeds a quota of its namespace."""
        group_resource = call.resource.group_resource
        if call.subresource or not call.resource.namespaced:
            return
        if old is not None and group_resource not in COUNTED_ON_UPDATE:
            return
        for record in self._core.cache.scan_staged(STORE, f"{call.namespace}/"):
            why = self._refusal(record, group_resource, new, old)
            if why:
                name = new["metadata"].get("name", "")
                raise status_errors.forbidden(call.resource.plural, call.resource.group, name, why)

    def _refusal(
        self, record: ObjectRecord, group_resource: str, new: Object, old: Object | None
    ) -> str:
        spec = record.object().get("spec") or {}
        hard = {
            n: v
            for n, v in resource_list.parse(spec.get("hard")).items()
            if usage.group_resource_of(n) == group_resource
        }
        if not hard or not usage.in_scope(spec, group_resource, new):
            return ""
        if group_resource == "pods" and (missing_text := usage.missing(hard, new)):
            return f"failed quota: {record.name}: {missing_text}"
        before = usage.usage_of(group_resource, old) if old is not None else {}
        wanted = {
            n: more
            for n, v in usage.usage_of(group_resource, new).items()
            if n in hard and (more := v - before.get(n, ZERO)) > ZERO
        }
        return self._exceeded(record, hard, wanted, spec) if wanted else ""

    def _exceeded(
        self, record: ObjectRecord, hard: ResourceList, wanted: ResourceList, spec: Object
    ) -> str:
        used = self._used(spec, wanted, record.namespace)
        over = [n for n, more in wanted.items() if used[n] + more > hard[n]]
        if not over:
            return ""
        requested, taken, limited = (
            resource_list.format_list({n: part[n] for n in over}) for part in (wanted, used, hard)
        )
        return (
            f"exceeded quota: {record.name}, requested: {requested}, used: {taken}, "
            f"limited: {limited}"
        )

    def _used(self, spec: Object, names: ResourceList, namespace: str) -> ResourceList:
        """Count the usage of existing objects."""
        found: ResourceList = dict.fromkeys(names, ZERO)
        scoped = bool(spec.get("scopes") or spec.get("scopeSelector"))
        for group_resource in {usage.group_resource_of(name) for name in names}:
            for record in self._core.cache.scan_staged(group_resource, f"{namespace}/"):
                if scoped and not usage.in_scope(spec, group_resource, record.object()):
                    continue
                for name, value in _of(record).items():
                    if name in found:
                        found[name] = found[name] + value
        return found

    def sync(self, namespace: str) -> None:
        """Update the status of the quotas of a namespace."""
        resource = self._core.registry.hub(STORE)
        for record in self._core.cache.scan_staged(STORE, f"{namespace}/"):
            obj = record.object()
            hard = resource_list.parse((obj.get("spec") or {}).get("hard"))
            used = self._used(obj.get("spec") or {}, hard, namespace)
            status: Object = {}
            if hard:
                status = {
                    "hard": resource_list.to_strings(hard),
                    "used": resource_list.to_strings(used),
                }
            if resource is not None and status != (obj.get("status") or {}):
                obj["status"] = status
                self._core.put(resource, obj, record)


def _of(record: ObjectRecord) -> ResourceList:
    known: ResourceList | None = record.cached_value("usage")
    if known is None:
        known = usage.usage_of(record.group_resource, record.object())
        record.cache_value("usage", known)
    return known
