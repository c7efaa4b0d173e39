"""
The contract between a controller and the runtime.

A controller says what one object needs now and returns; everything around that is done for it by
:mod:`moxwell.runtime.worker`: fetching, the finalizer, the log context, errors as conditions, the
status write, the end of a deletion, the counting. Failure raises, success returns; never both.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

from moxwell.runtime.watches import Watch

K_contra = TypeVar("K_contra", contravariant=True)
S_co = TypeVar("S_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Note:
    """An event for the people who watch the object; equal notes are counted, not repeated."""

    reason: str  # CamelCase, from the controller's closed set
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


@dataclass(frozen=True, slots=True)
class Outcome(Generic[S_co]):
    """
    What a pass found.

    ``status`` holds the fields this controller owns, computed from scratch; None leaves it alone.
    ``again`` asks for another look in that many seconds; a change brings one in any case.
    ``settled`` with an object being deleted means: nothing of it is left, let it go.
    ``left`` is the object as the pass itself wrote it, if it did: status is written over that.
    """

    status: S_co | None
    again: float | None = None
    settled: bool = False
    notes: tuple[Note, ...] = ()
    left: Any = None


@runtime_checkable
class Reconciler(Protocol[K_contra, S_co]):
    """
    One loop over one kind.

    ``finalizer`` is put on the object before the first pass; empty for a controller that leaves
    nothing behind outside Kubernetes. ``watches`` are other kinds whose changes concern ours.
    """

    @property
    def kind(self) -> Any: ...  # a kind declared by ``@kind``, or a ``Resource``
    @property
    def finalizer(self) -> str: ...
    @property
    def watches(self) -> Sequence[Watch]: ...

    async def reconcile(self, obj: K_contra) -> Outcome[S_co]:
        """One look and at most one step; never waits."""
        ...


def no_share(obj: Any) -> str:
    """All objects in one share: for controllers that do not touch a region."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """
    A reconciler and how it is run: the entry of one line in the composition root.

    ``name`` is its address (``infra.machine``) in logs, metrics and events. ``share`` names the
    region of an object. ``condition`` is the type that tells of a failed pass: ``Ready`` for kinds
    of ours, none for others' unless named here (the Ready of a Node is the kubelet's). ``owns``
    lists condition types that disappear when a pass does not mention them. ``pausable`` kinds
    follow Cluster API's rules for paused objects. A controller without finalizer does not see
    objects that are being deleted, unless ``sees_deleting``.
    """

    name: str
    reconciler: Reconciler[Any, Any]
    share: Callable[[Any], str] = no_share
    condition: str | None = None
    owns: Collection[str] = ()
    pausable: bool = False
    sees_deleting: bool = False
    per_share: int | None = None  # None: as the settings say
    resync_seconds: float | None = None
    needs: Callable[[Any], bool] | None = None  # objects it does not concern are left alone
