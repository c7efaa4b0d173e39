"""Who may do what."""

from moxwell.api import wire
from moxwell.store.calls import Call
from moxwell.store.state import State


class Authorizer:
    """Decides."""

    def __init__(self, state: State) -> None:
        self._state = state

    def check(self, call: Call) -> None:
        """Raises 403."""

    def check_path(self, request: wire.Request) -> None:
        """Raises 403."""
