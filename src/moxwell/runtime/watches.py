"""
Which other kinds concern a controller, and whose turn it is when one of them changes.

A ``Watch`` is a kind and a function from an object of it to keys of the controller's own kind. On a
change the function is asked about the object as it was and as it is, so an object that moves from
one owner to another wakes both.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from moxwell.runtime.key import Key


def anything(old: Any, new: Any) -> bool:
    """The filter that lets every change through."""
    return True


@dataclass(frozen=True, slots=True)
class Watch:
    """``filter`` sees the object before and after; None where there is none."""

    kind: Any  # a kind declared by ``@kind``, or a ``Resource``
    keys: Callable[[Any], Iterable[Key]]
    filter: Callable[[Any, Any], bool] = anything

    def wakes(self, old: Any, new: Any) -> set[Key]:
        """The keys that a change from ``old`` to ``new`` concerns."""
        if not self.filter(old, new):
            return set()
        return {key for obj in (old, new) if obj is not None for key in self.keys(obj)}
