"""The core/v1 Event."""

from datetime import datetime

from msgspec import field

from moxwell.api.capi.shared import ObjectReference
from moxwell.api.kinds import Object, kind
from moxwell.api.meta import Value


class EventSource(Value, frozen=True, kw_only=True):
    component: str = ""
    host: str = ""


class InvolvedObject(ObjectReference, frozen=True, kw_only=True):
    """The object an event is about."""

    resource_version: str = field(name="resourceVersion", default="")
    field_path: str = field(name="fieldPath", default="")


@kind(group="", version="v1", plural="events", builtin=True)
class Event(Object, frozen=True, kw_only=True):
    """A core/v1 Event."""

    involved_object: InvolvedObject = field(name="involvedObject", default_factory=InvolvedObject)
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    source: EventSource = field(default_factory=EventSource)
    first_timestamp: datetime | None = field(name="firstTimestamp", default=None)
    last_timestamp: datetime | None = field(name="lastTimestamp", default=None)
    event_time: str | None = field(name="eventTime", default=None)
    action: str = ""
    reporting_controller: str = field(name="reportingComponent", default="")
    reporting_instance: str = field(name="reportingInstance", default="")


KINDS: tuple[type[Object], ...] = (Event,)
