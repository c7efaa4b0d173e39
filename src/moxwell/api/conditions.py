"""
Conditions: what is true of an object, since when, and why.

Plans say them without a time; :mod:`moxwell.runtime.status` puts them beside what is there and
dates those whose status moved.
"""

from datetime import datetime
from typing import Literal, cast

from msgspec import UNSET, field

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
