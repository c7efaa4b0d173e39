"""
Resource quotas: writes that would use more than is granted are refused, and the status tells.

What is used is counted from the objects as the next write must see them, staged ones included, so
two writes in one commit cannot both take the last place. A genuine apiserver counts in the quota's
status instead and refuses everything until its controller manager has filled that in.
"""

from typing import Any

from moxwell.embedded.apiserver import status_errors
from moxwell.embedded.apiserver.core import Core
from moxwell.embedded.apiserver.object_cache import Record
from moxwell.embedded.apiserver.quota import resource_list, usage
from moxwell.embedded.apiserver.quota.resource_list import ZERO, Amounts
from moxwell.embedded.apiserver.request_info import Call

Object = dict[str, Any]
STORE = "resourcequotas"
COUNTED_ON_UPDATE = ("services", "persistentvolumeclaims")


class Quotas:
    """Grants and counts."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def check(self, call: Call, new: Object, old: Object | None) -> None:
        """Refuse what no quota of its namespace has room for."""
        store = call.face.store
        if call.sub or not call.face.namespaced:
            return
        if old is not None and store not in COUNTED_ON_UPDATE:
            return
        for record in self._core.state.scan_staged(STORE, f"{call.namespace}/"):
            why = self._refusal(record, store, new, old)
            if why:
                name = new["metadata"].get("name", "")
                raise status_errors.forbidden(call.face.plural, call.face.group, name, why)

    def _refusal(self, record: Record, store: str, new: Object, old: Object | None) -> str:
        spec = record.object().get("spec") or {}
        hard = {
            n: v
            for n, v in resource_list.read(spec.get("hard")).items()
            if usage.store_of(n) == store
        }
        if not hard or not usage.in_scope(spec, store, new):
            return ""
        if store == "pods" and (said := usage.missing(hard, new)):
            return f"failed quota: {record.name}: {said}"
        before = usage.of(store, old) if old is not None else {}
        wanted = {
            n: more
            for n, v in usage.of(store, new).items()
            if n in hard and (more := v - before.get(n, ZERO)).value > 0
        }
        return self._exceeded(record, hard, wanted, spec) if wanted else ""

    def _exceeded(self, record: Record, hard: Amounts, wanted: Amounts, spec: Object) -> str:
        used = self._used(spec, wanted, record.namespace)
        over = [n for n, more in wanted.items() if (used[n] + more).value > hard[n].value]
        if not over:
            return ""
        requested, taken, limited = (
            resource_list.tell({n: part[n] for n in over}) for part in (wanted, used, hard)
        )
        return (
            f"exceeded quota: {record.name}, requested: {requested}, used: {taken}, "
            f"limited: {limited}"
        )

    def _used(self, spec: Object, names: Amounts, namespace: str) -> Amounts:
        """What the objects there are use of these resources."""
        found: Amounts = dict.fromkeys(names, ZERO)
        scoped = bool(spec.get("scopes") or spec.get("scopeSelector"))
        for store in {usage.store_of(name) for name in names}:
            for record in self._core.state.scan_staged(store, f"{namespace}/"):
                if scoped and not usage.in_scope(spec, store, record.object()):
                    continue
                for name, value in _of(record).items():
                    if name in found:
                        found[name] = found[name] + value
        return found

    def look(self, namespace: str) -> None:
        """Bring the status of every quota of a namespace up to date."""
        face = self._core.registry.hub(STORE)
        for record in self._core.state.scan_staged(STORE, f"{namespace}/"):
            obj = record.object()
            hard = resource_list.read((obj.get("spec") or {}).get("hard"))
            used = self._used(obj.get("spec") or {}, hard, namespace)
            status: Object = {}
            if hard:
                status = {"hard": resource_list.write(hard), "used": resource_list.write(used)}
            if face is not None and status != (obj.get("status") or {}):
                obj["status"] = status
                self._core.put(face, obj, record)


def _of(record: Record) -> Amounts:
    known: Amounts | None = record.recall("usage")
    if known is None:
        known = usage.of(record.store, record.object())
        record.remember("usage", known)
    return known
