"""
How the driver says no, and which gRPC status each no is.

In: any error of the tree in :mod:`moxwell.errors`. Out: the status code that the CSI specification
asks for. The surprise: sidecars decide by the code alone whether a call may still be going on in
the background (UNAVAILABLE, ABORTED, RESOURCE_EXHAUSTED) or is over for good, so a lost answer must
never look final, and a refusal must never look like one that may yet succeed.
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
    """No size that was asked for is possible."""

    reason = "OutOfRange"


class Incompatible(Terminal):
    """It exists already, and is not what was asked for."""

    reason = "Incompatible"


class HeldElsewhere(Terminal):
    """Another guest has the volume."""

    reason = "HeldElsewhere"


class NotNow(Terminal):
    """Something must be done before this is possible."""

    reason = "FailedPrecondition"


class NoRoom(Busy):
    """No slot, no space, or nowhere that the topology allows."""

    reason = "NoRoom"


class WrongDisk(Terminal):
    """The device, or what is mounted, is not the volume that was asked for."""

    reason = "WrongDisk"


class UnderWay(Busy):
    """The same is being done right now."""

    reason = "UnderWay"


_CODES: tuple[tuple[type[MoxwellError], grpc.StatusCode], ...] = (
    (OutOfRange, Code.OUT_OF_RANGE),
    (Incompatible, Code.ALREADY_EXISTS),
    (HeldElsewhere, Code.FAILED_PRECONDITION),
    (NotNow, Code.FAILED_PRECONDITION),
    (WrongDisk, Code.FAILED_PRECONDITION),
    (NoRoom, Code.RESOURCE_EXHAUSTED),
    (pve_errors.StorageFull, Code.RESOURCE_EXHAUSTED),
    (pve_errors.Unauthenticated, Code.UNAUTHENTICATED),
    (pve_errors.HotplugRefused, Code.INTERNAL),
    (Unreachable, Code.UNAVAILABLE),
    (Busy, Code.ABORTED),
    (Conflict, Code.ABORTED),
    (Missing, Code.NOT_FOUND),
    (Denied, Code.PERMISSION_DENIED),
    (Unsupported, Code.FAILED_PRECONDITION),
    (Invalid, Code.INVALID_ARGUMENT),
)


def code_of(error: MoxwellError) -> grpc.StatusCode:
    """The status of an error; the first class that fits."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return Code.INTERNAL


def need(value: object, what: str) -> None:
    """Refuse a request that lacks what the specification asks for."""
    if not value:
        raise Invalid(f"{what} is missing")
