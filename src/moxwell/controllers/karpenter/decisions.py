"""
Where decisions are computed: on the event loop, in a thread, or in a process of their own.

A decision is a pure function with its arguments bound (``functools.partial``), so that a process
can receive it.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from moxwell.errors import Busy

T = TypeVar("T")


class DecisionTimeout(Busy):
    """A decision was ended because it took too long or too much memory."""

    reason = "DecisionTimeout"


class DecisionRunner(Protocol):
    """Computes decisions of one cluster."""

    async def run(self, decide: Callable[[], T], size: int) -> T:
        """The result of a pure function; ``size`` is the number of pods that it concerns."""


class ThreadDecisions:
    """Computes small decisions on the event loop and larger ones in a thread."""

    def __init__(self, most_in_loop: int = 50) -> None:
        self._most = most_in_loop

    async def run(self, decide: Callable[[], T], size: int) -> T:
        return decide() if size <= self._most else await asyncio.to_thread(decide)
