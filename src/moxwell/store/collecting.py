"""What goes on by itself: garbage, namespaces, conditions of CRDs, old events."""

from collections.abc import Awaitable, Callable

from moxwell.api import wire
from moxwell.store.core import Core
from moxwell.store.state import Change


class Collector:
    """Works."""

    def __init__(
        self, core: Core, handle: Callable[[wire.Request], Awaitable[wire.Response]]
    ) -> None:
        self._core, self._handle = core, handle

    async def start(self) -> None:
        """Begin."""

    async def stop(self) -> None:
        """End."""

    def changed(self, change: Change) -> None:
        """Look at a committed change."""
