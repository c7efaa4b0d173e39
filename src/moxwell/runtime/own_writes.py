"""
Telling our own writes from other people's, and our own copy from the truth.

A pass that writes status causes a watch event on its own object; looking again because of it would
be work for nothing, for ever. So versions that we wrote are remembered, and their events are let
by. Events that arrive while the pass still runs are judged at its end, when it is known which were
its own. The other way round, a cache that has not yet seen our write is stale and says so.
"""

from moxwell.runtime.key import Key
from moxwell.runtime.objects import is_newer


class Echoes:
    """What we wrote and have not seen again yet, by key."""

    def __init__(self) -> None:
        self._wrote: dict[Key, set[str]] = {}
        self._early: dict[Key, set[str]] = {}  # of keys whose pass is running

    def begin(self, key: Key) -> None:
        """A pass starts."""
        self._early[key] = set()

    def wrote(self, key: Key, version: str) -> None:
        """The pass wrote this version."""
        self._wrote.setdefault(key, set()).add(version)

    def end(self, key: Key) -> bool:
        """The pass is over; whether somebody else changed the object meanwhile."""
        early, wrote = self._early.pop(key, set()), self._wrote.get(key, set())
        foreign = early - wrote
        self._settle(key, early & wrote)
        return bool(foreign)

    def heard(self, key: Key, version: str) -> bool:
        """An event came; whether it is news."""
        early = self._early.get(key)
        if early is not None:
            early.add(version)
            return False
        wrote = self._wrote.get(key)
        if wrote is None:
            return True
        if version in wrote:
            self._settle(key, {version})
            return False
        if all(is_newer(version, than=ours) for ours in wrote):
            del self._wrote[key]  # ours were skipped by a relist
        return True

    def is_stale(self, key: Key, version: str) -> bool:
        """Whether a cached version is older than what we wrote ourselves."""
        return any(is_newer(ours, than=version) for ours in self._wrote.get(key, ()))

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._wrote.pop(key, None)

    def _settle(self, key: Key, seen: set[str]) -> None:
        """These have come back, and with them everything we wrote before them."""
        wrote = self._wrote.get(key)
        if wrote is None or not seen:
            return
        left = {ours for ours in wrote if all(is_newer(ours, than=v) for v in seen)}
        if left:
            self._wrote[key] = left
        else:
            del self._wrote[key]
