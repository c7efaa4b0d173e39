"""
The contract between a controller and the runtime.

A controller has four parts, and :mod:`moxwell.runtime.worker` calls them in this order:

- ``see(obj, reader)`` reads what the decision needs. ``reader`` has no write methods.
- ``plan(obj, seen)`` decides the one next move. It is pure: no I/O, no clock, no state.
- ``act(move)`` executes a move that is neither ``Wait`` nor ``Done``.
- ``describe(obj, seen, move)`` computes the status from scratch. It is pure.

The worker fetches the object, adds and removes the finalizer, binds the log context, turns an error
into a condition, writes the status and counts. Failure raises, success returns.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from moxwell.kube.reader import Reader
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.watches import Watch

K = TypeVar("K")  # the kind: a declared kind, or a dict where only a Resource is known
Seen = TypeVar("Seen")  # what see returns
M = TypeVar("M")  # the union of moves
S = TypeVar("S")  # the status

STEP_SECONDS = 3.0  # until the next pass after a move, if no event causes one earlier


@dataclass(frozen=True, slots=True)
class Note:
    """A Kubernetes event for the object; the recorder counts equal ones instead of repeating."""

    reason: str  # CamelCase, from the controller's closed set
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


class Reconciler(ABC, Generic[K, Seen, M, S]):
    """
    One control loop over one kind.

    ``finalizer`` is added before the first pass; it is empty for a controller that creates nothing
    outside Kubernetes. ``watches`` are the other kinds whose changes cause a pass.
    """

    kind: Any  # a kind declared by ``@kind``, or a ``Resource``
    finalizer: str = ""
    watches: Sequence[Watch] = ()

    @abstractmethod
    async def see(self, obj: K, reader: Reader) -> Seen:
        """Read what the decision needs. No decision and no effect here."""

    @abstractmethod
    def plan(self, obj: K, seen: Seen) -> M:
        """Decide the one next move. Pure."""

    @abstractmethod
    async def act(self, move: M) -> Any:
        """
        Execute a move other than Wait and Done; never wait for its outcome.

        Returns the reconciled object if the move wrote that object itself, else None: the status is
        then written on top of that version.
        """

    @abstractmethod
    def describe(self, obj: K, seen: Seen, move: M) -> S | None:
        """Compute the status from scratch; None leaves it. Pure; own status is no input."""

    def events(self, obj: K, seen: Seen, move: M) -> Sequence[Note]:
        """Kubernetes events to record for this pass. Pure."""
        return ()

    def requeue_after(self, obj: K, seen: Seen, move: M) -> float | None:
        """Seconds until the next pass if no event causes one earlier; None: the resync. Pure."""
        after: float | None = getattr(move, "requeue_after", None)
        if after is None and not isinstance(move, Wait | Done):
            return STEP_SECONDS
        return after


def no_shard(obj: Any) -> str:
    """The shard of controllers that do not work on a region."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """
    A reconciler and how it runs: one line of the composition root.

    ``name`` (``infra.machine``) identifies it in logs, metrics and events. ``shard`` returns the
    region of an object. ``condition`` is the condition type that reports a failed pass: ``Ready``
    for our kinds, none for others unless set here (the Ready of a Node is the kubelet's). ``owns``
    lists condition types that are removed when a pass does not return them. ``pausable`` kinds
    follow Cluster API's pause rules. A controller without a finalizer does not get objects that are
    being deleted, unless ``sees_deleting`` is set. A pass of an object for which ``defers_status``
    is true may leave the status to a later pass. Unless the object is being deleted, a status that
    turns a condition or changes one of the fields ``urgent_status`` is written at once, because
    other controllers wait for it.
    """

    name: str
    reconciler: Reconciler[Any, Any, Any, Any]
    shard: Callable[[Any], str] = no_shard
    condition: str | None = None
    owns: Collection[str] = ()
    pausable: bool = False
    sees_deleting: bool = False
    defers_status: Callable[[Any], bool] | None = None
    urgent_status: Collection[str] = ()
    per_shard: int | None = None  # None: the default of the settings
    resync_seconds: float | None = None
    needs: Callable[[Any], bool] | None = None  # False: no pass for the object
