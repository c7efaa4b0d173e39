"""
Conditions: what is true of an object, since when, and why.

``Conditions`` is a value: ``put`` gives a new one. The transition time moves only when the status
does, and the order is fixed, so an unchanged world yields an equal value and hence no write.
Times are cut to seconds, because Kubernetes stores no more: a finer one would differ for ever.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, cast

from msgspec import UNSET, field
from msgspec.structs import replace

from moxwell.api.meta import Value

Truth = Literal["True", "False", "Unknown"]
Severity = Literal["", "Error", "Warning", "Info"]


class Condition(Value, frozen=True, kw_only=True, omit_defaults=False):
    """A ``metav1.Condition``; reason and message are always on the wire, as its schema demands."""

    type: str
    status: Truth
    reason: str = ""
    message: str = ""
    # not put anywhere yet: absent on the wire, and never null, which a schema would refuse
    last_transition_time: datetime | None = field(
        name="lastTransitionTime", default=cast(None, UNSET)
    )
    observed_generation: int = field(name="observedGeneration", default=0)


class LegacyCondition(Value, frozen=True, kw_only=True):
    """The condition of Cluster API v1beta1: a severity beside a False, no generation."""

    type: str
    status: Truth
    severity: Severity = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = field(name="lastTransitionTime", default=None)


C = TypeVar("C", Condition, LegacyCondition)


@dataclass(frozen=True)  # no slots: Python 3.11 cannot make a generic one with them
class Conditions(Generic[C]):
    """Some conditions, at most one of each type, sorted by type."""

    items: tuple[C, ...] = ()

    @classmethod
    def of(cls, items: Iterable[C]) -> "Conditions[C]":
        """Conditions as found on an object; the last of each type wins."""
        by_type = {c.type: c for c in items}
        return cls(tuple(sorted(by_type.values(), key=lambda c: c.type)))

    def get(self, type_: str) -> C | None:
        """The condition of this type, if there is one."""
        return next((c for c in self.items if c.type == type_), None)

    def status(self, type_: str) -> Truth:
        """Its status; what was never said is Unknown."""
        found = self.get(type_)
        return found.status if found else "Unknown"

    def is_true(self, type_: str) -> bool:
        return self.status(type_) == "True"

    def is_false(self, type_: str) -> bool:
        return self.status(type_) == "False"

    def put(self, new: C, *, now: datetime) -> "Conditions[C]":
        """Add or replace; the transition time moves only when the status does."""
        old = self.get(new.type)
        since = now.replace(microsecond=0)
        if old is not None and old.status == new.status and old.last_transition_time:
            since = old.last_transition_time
        kept = [c for c in self.items if c.type != new.type]
        kept.append(replace(new, last_transition_time=since))
        return Conditions(tuple(sorted(kept, key=lambda c: c.type)))

    def put_all(self, new: Iterable[C], *, now: datetime) -> "Conditions[C]":
        """``put`` for each."""
        out = self
        for condition in new:
            out = out.put(condition, now=now)
        return out

    def drop(self, *types: str) -> "Conditions[C]":
        """Without these types."""
        return Conditions(tuple(c for c in self.items if c.type not in types))

    def true(
        self: "Conditions[Condition]", type_: str, reason: str, message: str = "", **more: Any
    ) -> "Conditions[Condition]":
        """Say that it is so; ``now`` and, if known, ``generation`` by name."""
        return self._say(type_, "True", reason, message, **more)

    def false(
        self: "Conditions[Condition]", type_: str, reason: str, message: str = "", **more: Any
    ) -> "Conditions[Condition]":
        """Say that it is not so, and why."""
        return self._say(type_, "False", reason, message, **more)

    def unknown(
        self: "Conditions[Condition]", type_: str, reason: str, message: str = "", **more: Any
    ) -> "Conditions[Condition]":
        """Say that nobody can tell, and why."""
        return self._say(type_, "Unknown", reason, message, **more)

    def _say(
        self: "Conditions[Condition]",
        type_: str,
        status: Truth,
        reason: str,
        message: str,
        *,
        now: datetime,
        generation: int = 0,
    ) -> "Conditions[Condition]":
        made = Condition(
            type=type_,
            status=status,
            reason=reason,
            message=message,
            observed_generation=generation,
        )
        return self.put(made, now=now)


def as_legacy(condition: Condition, severity: Severity = "Info") -> LegacyCondition:
    """The same statement in the words of Cluster API v1beta1, where only a False has a severity."""
    return LegacyCondition(
        type=condition.type,
        status=condition.status,
        severity=severity if condition.status == "False" else "",
        reason=condition.reason,
        message=condition.message,
        last_transition_time=condition.last_transition_time,
    )
