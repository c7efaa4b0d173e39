"""
Conditions of Kubernetes objects: ``metav1.Condition`` and Cluster API's older form.

Controllers return conditions without times; :mod:`moxwell.runtime.status` compares them with the
stored ones and sets ``lastTransitionTime`` where the status changed.
"""

from datetime import datetime
from typing import Literal, cast

from msgspec import UNSET, field

from moxwell.api.meta import Value

ConditionStatus = Literal["True", "False", "Unknown"]
Severity = Literal["", "Error", "Warning", "Info"]


class Condition(Value, frozen=True, kw_only=True, omit_defaults=False):
    """
    A ``metav1.Condition``; reason and message are always encoded, as its schema requires them.
    """

    type: str
    status: ConditionStatus
    reason: str = ""
    message: str = ""
    # Unset until :mod:`moxwell.runtime.status` sets it; encoded as absent, because the schema
    # rejects null.
    last_transition_time: datetime | None = field(
        name="lastTransitionTime", default=cast(None, UNSET)
    )
    observed_generation: int = field(name="observedGeneration", default=0)


class LegacyCondition(Value, frozen=True, kw_only=True):
    """A condition of Cluster API v1beta1: with a severity, without an observed generation."""

    type: str
    status: ConditionStatus
    severity: Severity = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = field(name="lastTransitionTime", default=None)
