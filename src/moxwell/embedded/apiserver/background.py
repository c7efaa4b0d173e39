"""
What goes on by itself: one task that looks again at whatever a committed change may concern.

Changes put places on a queue; the task takes them off, lets :mod:`garbage`, :mod:`namespaces` and
:mod:`budgets` stage what follows, and settles. Events older than an hour go, as they do elsewhere.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from moxwell.embedded.apiserver import bootstrap
from moxwell.embedded.apiserver.core import Core
from moxwell.embedded.apiserver.crd import definitions
from moxwell.embedded.apiserver.deleter import Remover
from moxwell.embedded.apiserver.garbage import Garbage
from moxwell.embedded.apiserver.namespaces import Namespaces
from moxwell.embedded.apiserver.object_cache import Change, Record
from moxwell.embedded.apiserver.pdb import Budgets
from moxwell.embedded.apiserver.protection import Protection
from moxwell.embedded.apiserver.quota import resource_quotas
from moxwell.embedded.apiserver.quota.resource_quotas import Quotas
from moxwell.embedded.apiserver.status_errors import Refused

EVENT_LIFE = timedelta(hours=1)
SWEEP_SECONDS = 40.0
FORGET_EVERY = 15  # sweeps
Place = tuple[str, str, str]  # what to do, store, key
_DELETING = b'"deletionTimestamp":"'


class Collector:
    """The one background task of a store."""

    def __init__(self, core: Core, remover: Remover, root_ca: str) -> None:
        self._core = core
        self._garbage = Garbage(core, remover)
        self._namespaces = Namespaces(core, remover, self._garbage, root_ca)
        self._budgets = Budgets(core)
        self._quotas = Quotas(core)
        self._protection = Protection(core, self._garbage)
        self._queue: dict[Place, None] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._sweeps = 0
        self._work: dict[str, Callable[[str, str], None]] = {
            "garbage": self._garbage.look,
            "namespace": lambda _, key: self._namespaces.look(key),
            "definition": lambda _, key: self._namespaces.look_definition(key),
            "budgets": lambda _, key: self._budgets.look(key),
            "pod": self._abandoned,
            "protected": self._protection.look,
            "node": self._protection.look_node,
            "quotas": lambda _, key: self._quotas.look(key),
        }

    async def start(self) -> None:
        """Make what every cluster has, look at everything once, and begin."""
        bootstrap.ensure(self._core)
        await self._core.commits.settle()
        for store in self._core.state.stores():
            for record in self._core.state.table(store).scan():
                self._concerns(record, None, deleted=False)
        while self._queue:
            self._drain()
            await self._core.commits.settle()
        self._task = asyncio.create_task(self._run(), name="store-collector")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def changed(self, change: Change) -> None:
        """Note what a committed change may concern."""
        self._concerns(change.record, change.previous, deleted=change.deleted)
        if self._queue:
            self._wake.set()

    def _concerns(self, record: Record, previous: Record | None, *, deleted: bool) -> None:
        add = self._add
        if deleted:
            for dependant in self._core.state.owned_by(record.uid):
                add("garbage", dependant.store, dependant.key)
            for uid in record.owners:
                if (
                    owner := self._core.state.find_uid(uid)
                ) is not None and _DELETING in owner.body:
                    add("garbage", owner.store, owner.key)
        elif record.owners or _DELETING in record.body:
            add("garbage", record.store, record.key)
            for uid in previous.owners if previous is not None else ():
                if (owner := self._core.state.find_uid(uid)) is not None:
                    add("garbage", owner.store, owner.key)
        self._special(record, deleted=deleted)

    def _special(self, record: Record, *, deleted: bool) -> None:
        if record.store == "namespaces" and not deleted:
            self._add("namespace", "", record.name)
        elif record.store == definitions.STORE and not deleted:
            self._add("definition", "", record.name)
        elif record.store in ("pods", "poddisruptionbudgets.policy"):
            self._add("budgets", "", record.namespace)
            if record.store == "pods" and deleted:
                for claim in self._core.state.table("persistentvolumeclaims").scan(
                    f"{record.namespace}/"
                ):
                    if _DELETING in claim.body:
                        self._add("protected", claim.store, claim.key)
        elif record.store in ("persistentvolumes", "persistentvolumeclaims"):
            if not deleted and _DELETING in record.body:
                self._add("protected", record.store, record.key)
        elif record.store == "nodes" and not deleted:
            self._add("node", record.store, record.key)
        if record.namespace and self._core.state.table(resource_quotas.STORE).keys:
            self._add("quotas", "", record.namespace)
        if deleted and record.namespace:
            self._add("namespace", "", record.namespace)
        if deleted and self._core.registry.hub(record.store) and "." in record.store:
            self._add("definition", "", record.store)

    def _add(self, what: str, store: str, key: str) -> None:
        self._queue[what, store, key] = None

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(SWEEP_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                self._sweeps += 1
                if self._sweeps % FORGET_EVERY == 0:
                    self._forget_events()
                for pod in self._core.state.table("pods").scan():
                    if _DELETING in pod.body:
                        self._add("pod", pod.store, pod.key)
            self._wake.clear()
            self._drain()
            try:
                await self._core.commits.settle()
            except Refused:  # the disk is full: what was queued comes again with the next sweep
                await self._core.clock.sleep(1)
                self._look_again()

    def _look_again(self) -> None:
        for store in self._core.state.stores():
            for record in self._core.state.table(store).scan():
                self._concerns(record, None, deleted=False)
        self._wake.set()

    def _drain(self) -> None:
        queue, self._queue = self._queue, {}
        for what, store, key in queue:
            try:
                self._work[what](store, key)
            except Refused:
                continue  # an admission rule or a full disk said no; the next change asks again

    def _abandoned(self, store: str, key: str) -> None:
        """A Pod that is to go but whose node is gone has nobody to end it."""
        record = self._core.state.find_staged(store, key)
        face = self._core.registry.hub(store)
        if record is None or face is None:
            return
        obj = record.object()
        node = (obj.get("spec") or {}).get("nodeName", "")
        if (
            obj["metadata"].get("deletionTimestamp")
            and self._core.state.find("nodes", node) is None
        ):
            obj["metadata"]["deletionGracePeriodSeconds"] = 0
            self._garbage.write(face, record, obj)

    def _forget_events(self) -> None:
        face, before = self._core.registry.hub("events"), self._core.clock.now() - EVENT_LIFE
        for record in list(self._core.state.table("events").scan()):
            obj = record.object()
            last = (
                obj.get("lastTimestamp")
                or obj.get("eventTime")
                or obj["metadata"]["creationTimestamp"]
            )
            if face is not None and datetime.fromisoformat(last) < before:
                self._core.commits.drop("events", obj, record)
