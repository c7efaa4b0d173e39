"""
The driver's errors and the gRPC status code of every error.

Sidecars decide by the status code alone whether an operation may still be in progress (UNAVAILABLE,
ABORTED, RESOURCE_EXHAUSTED) or has finally failed. So an error with an unknown outcome never maps
to a final code, and a final error never maps to a code of the first group.
"""

import grpc

from moxwell.errors import (
    Busy,
    Conflict,
    Denied,
    Invalid,
    Missing,
    MoxwellError,
    Terminal,
    Unreachable,
    Unsupported,
)
from moxwell.pve import errors as pve_errors

Code = grpc.StatusCode


class OutOfRange(Invalid):
    """The capacity range cannot be satisfied."""

    reason = "OutOfRange"


class Incompatible(Terminal):
    """A volume or snapshot of this name exists with different parameters."""

    reason = "Incompatible"


class AttachedElsewhere(Terminal):
    """The volume is attached to another guest."""

    reason = "AttachedElsewhere"


class FailedPrecondition(Terminal):
    """The operation is not possible in the current state."""

    reason = "FailedPrecondition"


class InsufficientCapacity(Busy):
    """There is no free slot, not enough space, or no storage that the topology allows."""

    reason = "InsufficientCapacity"


class DeviceMismatch(Terminal):
    """A device or mount is not the requested volume."""

    reason = "DeviceMismatch"


class OperationPending(Busy):
    """The same operation is already in progress."""

    reason = "OperationPending"


_CODES: tuple[tuple[type[MoxwellError], grpc.StatusCode], ...] = (
    (OutOfRange, Code.OUT_OF_RANGE),
    (Incompatible, Code.ALREADY_EXISTS),
    (AttachedElsewhere, Code.FAILED_PRECONDITION),
    (FailedPrecondition, Code.FAILED_PRECONDITION),
    (DeviceMismatch, Code.FAILED_PRECONDITION),
    (InsufficientCapacity, Code.RESOURCE_EXHAUSTED),
    (pve_errors.StorageFull, Code.RESOURCE_EXHAUSTED),
    (pve_errors.CredentialsRefused, Code.UNAUTHENTICATED),
    (pve_errors.HotplugRefused, Code.INTERNAL),
    (Unreachable, Code.UNAVAILABLE),
    (Busy, Code.ABORTED),
    (Conflict, Code.ABORTED),
    (Missing, Code.NOT_FOUND),
    (Denied, Code.PERMISSION_DENIED),
    (Unsupported, Code.FAILED_PRECONDITION),
    (Invalid, Code.INVALID_ARGUMENT),
)


def status_code(error: MoxwellError) -> grpc.StatusCode:
    """The gRPC status code of an error; the first matching class decides."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return Code.INTERNAL


def require(value: object, what: str) -> None:
    """Raise Invalid if a required field of a request is empty."""
    if not value:
        raise Invalid(f"{what} is required")
