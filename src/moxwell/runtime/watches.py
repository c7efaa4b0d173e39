"""
Which other kinds a controller watches, and which of its keys a change of them enqueues.

The map function is called for the object before and after the change, so an object that changes its
owner enqueues both owners.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from moxwell.runtime.key import Key

COALESCE_SECONDS = 1.0  # the delay for objects of which one key has many


def anything(old: Any, new: Any) -> bool:
    """The filter that accepts every change."""
    return True


@dataclass(frozen=True, slots=True)
class Watch:
    """
    ``filter`` gets the object before and after; None where there is none.

    A ``delay`` is longer while the passes of a key take long (:meth:`.queue.Queue.spaced`).
    """

    kind: Any  # a kind declared by ``@kind``, or a ``Resource``
    keys: Callable[[Any], Iterable[Key]]
    filter: Callable[[Any, Any], bool] = anything
    delay: float = 0.0  # seconds that a change may wait, so that many changes cause one pass

    def wakes(self, old: Any, new: Any) -> set[Key]:
        """The keys that a change from ``old`` to ``new`` enqueues."""
        if not self.filter(old, new):
            return set()
        return {key for obj in (old, new) if obj is not None for key in self.keys(obj)}
