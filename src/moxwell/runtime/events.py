"""
Records Kubernetes events.

Equal events increase a count, similar ones are combined and an object with too many events is
rate-limited, with client-go's numbers. Recording never blocks and never fails a pass: events go
into a bounded buffer that ``run`` writes out; what does not fit or is rejected is counted and
dropped.
"""

import asyncio
import hashlib
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog

from moxwell.api.kinds import Resource
from moxwell.clock import Clock
from moxwell.errors import MoxwellError
from moxwell.kube.client import Kube
from moxwell.kube.errors import AlreadyExists, NotFound
from moxwell.runtime.backoff import Bucket
from moxwell.runtime.metrics import Metrics
from moxwell.runtime.objects import meta_of, resource_of
from moxwell.runtime.reconciler import Note

EVENTS = Resource("", "v1", "events", "Event")
BUFFER, REMEMBERED = 1000, 4096
SAME_SECONDS = 600.0  # window in which equal events increase one count
SIMILAR = 10  # more distinct messages than this in the window are combined
BURST, PER_SECOND = 25, 1 / 300  # events per object
LONGEST = 1024

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class About:
    """The object that an event refers to."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    version: str


@dataclass(slots=True)
class _Known:
    name: str
    count: int
    at: float


class Recorder:
    """Buffers events and writes them to the API."""

    def __init__(
        self, kube: Kube, clock: Clock, *, instance: str, metrics: Metrics | None = None
    ) -> None:
        self._kube, self._clock, self._instance = kube, clock, instance
        self._metrics = metrics
        self._buffer: deque[tuple[str, About, Note]] = deque()
        self._ready = asyncio.Event()
        self._known: OrderedDict[tuple[str, ...], _Known] = OrderedDict()
        self._texts: OrderedDict[tuple[str, ...], tuple[float, set[str]]] = OrderedDict()
        self._budgets: OrderedDict[str, Bucket] = OrderedDict()

    def note(self, controller: str, kind: Any, obj: Any, note: Note) -> None:
        """Add an event to the buffer; never blocks."""
        about = about_of(kind, obj)
        if len(self._buffer) >= BUFFER or not self._budget(about.uid).take():
            self._count("dropped")
            return
        self._buffer.append((controller, about, note))
        self._ready.set()

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            await self._ready.wait()
            await self.flush()

    async def flush(self) -> None:
        """Write the buffered events."""
        while self._buffer:
            controller, about, note = self._buffer.popleft()
            try:
                await self._write(controller, about, self._combined(about, note))
                self._count("written")
            except MoxwellError as error:
                log.info("event not written", reason=error.reason, error=str(error))
                self._count("refused")
        self._ready.clear()

    async def _write(self, controller: str, about: About, note: Note) -> None:
        key = (about.uid, note.type, note.reason, note.message)
        known, now = self._known.get(key), self._clock.monotonic()
        if known is not None and now - known.at < SAME_SECONDS and await self._repeat(about, known):
            return
        event = compose(about, note, controller, self._instance, self._clock.now())
        try:
            await self._kube.create(event, EVENTS)
        except AlreadyExists:
            log.debug("event already there", event_name=event["metadata"]["name"])
        _remember(self._known, key, _Known(event["metadata"]["name"], 1, now))

    async def _repeat(self, about: About, known: _Known) -> bool:
        """Increase the count of an event; False if the event no longer exists."""
        change = {"count": known.count + 1, "lastTimestamp": _stamp(self._clock.now())}
        try:
            await self._kube.merge(EVENTS, known.name, change, about.namespace or "default")
        except NotFound:
            return False
        known.count, known.at = known.count + 1, self._clock.monotonic()
        return True

    def _combined(self, about: About, note: Note) -> Note:
        """The combined event that replaces too many similar ones."""
        key, now = (about.uid, note.type, note.reason), self._clock.monotonic()
        since, texts = self._texts.get(key, (now, set[str]()))
        if now - since > SAME_SECONDS:
            since, texts = now, set()
        texts.add(note.message)
        _remember(self._texts, key, (since, texts))
        if len(texts) <= SIMILAR:
            return note
        return Note(note.reason, "(combined from similar events)", note.type)

    def _budget(self, uid: str) -> Bucket:
        bucket = self._budgets.get(uid)
        if bucket is None:
            bucket = Bucket(self._clock, per_second=PER_SECOND, burst=BURST)
        _remember(self._budgets, uid, bucket)
        return bucket

    def _count(self, result: str) -> None:
        if self._metrics:
            self._metrics.notes.labels(result).inc()


def about_of(kind: Any, obj: Any) -> About:
    """The reference to the object of an event."""
    meta, resource = meta_of(obj), resource_of(kind)
    return About(
        resource.api_version,
        resource.kind,
        meta.namespace,
        meta.name,
        meta.uid,
        meta.resource_version,
    )


def compose(
    about: About, note: Note, controller: str, instance: str, now: datetime
) -> dict[str, Any]:
    """The event object, with a deterministic name so that it is not created twice."""
    text = "\n".join((about.uid, note.type, note.reason, note.message, now.isoformat()))
    mark = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{about.name[:236]}.{mark}",
            "namespace": about.namespace or "default",
        },
        "involvedObject": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "name": about.name,
            "namespace": about.namespace,
            "uid": about.uid,
            "resourceVersion": about.version,
        },
        "type": note.type,
        "reason": note.reason,
        "message": note.message[:LONGEST],
        "count": 1,
        "firstTimestamp": _stamp(now),
        "lastTimestamp": _stamp(now),
        "source": {"component": controller},
        "reportingComponent": controller,
        "reportingInstance": instance,
    }


def _stamp(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _remember(of: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    of[key] = value
    of.move_to_end(key)
    if len(of) > REMEMBERED:
        of.popitem(last=False)
