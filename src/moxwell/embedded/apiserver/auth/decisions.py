"""The decision of an authorizer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a request is allowed, and why (or why not)."""

    allowed: bool
    reason: str = ""


ALLOWED = Decision(True)
NO_OPINION = Decision(False)
