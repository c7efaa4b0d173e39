"""
The background task: garbage collection, namespace deletion, disruption budgets, quotas and event
expiry.

Committed changes queue work items; the task processes them through :mod:`garbage`,
:mod:`namespaces`, :mod:`pdb`, :mod:`protection` and :mod:`quota`, and waits for the commit. Events
expire after an hour, as in kube-apiserver.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from moxwell.embedded.apiserver import bootstrap
from moxwell.embedded.apiserver.core import ServerContext
from moxwell.embedded.apiserver.crd import definitions
from moxwell.embedded.apiserver.deleter import Deleter
from moxwell.embedded.apiserver.garbage import GarbageCollector
from moxwell.embedded.apiserver.namespaces import NamespaceController
from moxwell.embedded.apiserver.object_cache import ObjectRecord, StoredChange
from moxwell.embedded.apiserver.pdb import PdbController
from moxwell.embedded.apiserver.protection import ProtectionController
from moxwell.embedded.apiserver.quota import resource_quotas
from moxwell.embedded.apiserver.quota.resource_quotas import ResourceQuotaController
from moxwell.embedded.apiserver.status_errors import StatusError

EVENT_TTL = timedelta(hours=1)
SWEEP_SECONDS = 40.0
EVENT_SWEEP_INTERVAL = 15  # in sweeps
WorkItem = tuple[str, str, str]  # action, group resource, key
_DELETING = b'"deletionTimestamp":"'


class BackgroundController:
    """Runs the background work of one API server."""

    def __init__(self, core: ServerContext, deleter: Deleter, root_ca: str) -> None:
        self._core = core
        self._garbage = GarbageCollector(core, deleter)
        self._namespaces = NamespaceController(core, deleter, self._garbage, root_ca)
        self._budgets = PdbController(core)
        self._quotas = ResourceQuotaController(core)
        self._protection = ProtectionController(core, self._garbage)
        self._queue: dict[WorkItem, None] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._sweeps = 0
        self._work: dict[str, Callable[[str, str], None]] = {
            "garbage": self._garbage.sync,
            "namespace": lambda _, key: self._namespaces.sync(key),
            "definition": lambda _, key: self._namespaces.sync_crd(key),
            "budgets": lambda _, key: self._budgets.sync(key),
            "pod": self._delete_orphaned_pod,
            "protected": self._protection.sync,
            "node": self._protection.sync_node,
            "quotas": lambda _, key: self._quotas.sync(key),
        }

    async def start(self) -> None:
        """Create the default objects, queue all objects once, and start."""
        bootstrap.ensure(self._core)
        await self._core.committer.wait_durable()
        for group_resource in self._core.cache.group_resources():
            for record in self._core.cache.table(group_resource).scan():
                self._queue_related(record, None, deleted=False)
        while self._queue:
            self._drain()
            await self._core.committer.wait_durable()
        self._task = asyncio.create_task(self._run(), name="store-collector")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def on_change(self, change: StoredChange) -> None:
        """Queue the objects that a committed change affects."""
        self._queue_related(change.record, change.previous, deleted=change.deleted)
        if self._queue:
            self._wake.set()

    def _queue_related(
        self, record: ObjectRecord, previous: ObjectRecord | None, *, deleted: bool
    ) -> None:
        add = self._add
        if deleted:
            for dependant in self._core.cache.owned_by(record.uid):
                add("garbage", dependant.group_resource, dependant.key)
            for uid in record.owners:
                if (
                    owner := self._core.cache.find_uid(uid)
                ) is not None and _DELETING in owner.body:
                    add("garbage", owner.group_resource, owner.key)
        elif self._may_be_garbage(record, previous):
            add("garbage", record.group_resource, record.key)
            for uid in previous.owners if previous is not None else ():
                if (owner := self._core.cache.find_uid(uid)) is not None:
                    add("garbage", owner.group_resource, owner.key)
        self._queue_special(record, deleted=deleted)

    def _may_be_garbage(self, record: ObjectRecord, previous: ObjectRecord | None) -> bool:
        """Whether a change concerns the owners of an object; most change none of them."""
        if _DELETING in record.body:
            return True
        if previous is None or previous.references_hash != record.references_hash:
            return bool(record.owners) or (previous is not None and bool(previous.owners))
        owners = (self._core.cache.find_uid(uid) for uid in record.owners)
        return any(owner is None or _DELETING in owner.body for owner in owners)

    def _queue_special(self, record: ObjectRecord, *, deleted: bool) -> None:
        if record.group_resource == "namespaces" and not deleted:
            self._add("namespace", "", record.name)
        elif record.group_resource == definitions.STORE and not deleted:
            self._add("definition", "", record.name)
        elif record.group_resource in ("pods", "poddisruptionbudgets.policy"):
            self._add("budgets", "", record.namespace)
            if record.group_resource == "pods" and deleted:
                for claim in self._core.cache.table("persistentvolumeclaims").scan(
                    f"{record.namespace}/"
                ):
                    if _DELETING in claim.body:
                        self._add("protected", claim.group_resource, claim.key)
        elif record.group_resource in ("persistentvolumes", "persistentvolumeclaims"):
            if not deleted and _DELETING in record.body:
                self._add("protected", record.group_resource, record.key)
        elif record.group_resource == "nodes" and not deleted:
            self._add("node", record.group_resource, record.key)
        if record.namespace and self._core.cache.table(resource_quotas.STORE).keys:
            self._add("quotas", "", record.namespace)
        if deleted and record.namespace:
            self._add("namespace", "", record.namespace)
        if (
            deleted
            and self._core.registry.hub(record.group_resource)
            and "." in record.group_resource
        ):
            self._add("definition", "", record.group_resource)

    def _add(self, what: str, group_resource: str, key: str) -> None:
        self._queue[what, group_resource, key] = None

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(SWEEP_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                self._sweeps += 1
                if self._sweeps % EVENT_SWEEP_INTERVAL == 0:
                    self._delete_expired_events()
                for pod in self._core.cache.table("pods").scan():
                    if _DELETING in pod.body:
                        self._add("pod", pod.group_resource, pod.key)
            self._wake.clear()
            self._drain()
            try:
                await self._core.committer.wait_durable()
            except StatusError:  # the disk is full; the next sweep queues the items again
                await self._core.clock.sleep(1)
                self._queue_all()

    def _queue_all(self) -> None:
        for group_resource in self._core.cache.group_resources():
            for record in self._core.cache.table(group_resource).scan():
                self._queue_related(record, None, deleted=False)
        self._wake.set()

    def _drain(self) -> None:
        queue, self._queue = self._queue, {}
        for what, group_resource, key in queue:
            try:
                self._work[what](group_resource, key)
            except StatusError:
                continue  # rejected by admission or a full disk; the next change queues it again

    def _delete_orphaned_pod(self, group_resource: str, key: str) -> None:
        """Delete a terminating Pod whose node is gone, because no kubelet will."""
        record = self._core.cache.find_staged(group_resource, key)
        resource = self._core.registry.hub(group_resource)
        if record is None or resource is None:
            return
        obj = record.object()
        node = (obj.get("spec") or {}).get("nodeName", "")
        if (
            obj["metadata"].get("deletionTimestamp")
            and self._core.cache.find("nodes", node) is None
            and not self._core.cache.is_unknown("nodes", node)
        ):
            obj["metadata"]["deletionGracePeriodSeconds"] = 0
            self._garbage.write(resource, record, obj)

    def _delete_expired_events(self) -> None:
        resource, before = self._core.registry.hub("events"), self._core.clock.now() - EVENT_TTL
        for record in list(self._core.cache.table("events").scan()):
            obj = record.object()
            last = (
                obj.get("lastTimestamp")
                or obj.get("eventTime")
                or obj["metadata"]["creationTimestamp"]
            )
            if resource is not None and datetime.fromisoformat(last) < before:
                self._core.committer.drop("events", obj, record)
