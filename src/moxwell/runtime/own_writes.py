"""
Recognises watch events that this controller's own writes caused, and stale cache entries.

A status write causes a watch event on the same object; a pass for it would be useless and would
repeat for ever. The versions that were written are recorded and their events ignored. Events that
arrive during a pass are judged at its end, when its writes are known. A cache that does not have
our last write yet is stale.
"""

from moxwell.runtime.key import Key
from moxwell.runtime.objects import is_newer


class OwnWrites:
    """Versions that this controller wrote and has not observed yet, by key."""

    def __init__(self) -> None:
        self._wrote: dict[Key, set[str]] = {}
        self._early: dict[Key, set[str]] = {}  # versions observed during a running pass

    def begin(self, key: Key) -> None:
        """A pass starts."""
        self._early[key] = set()

    def wrote(self, key: Key, version: str) -> None:
        """The pass wrote this version."""
        self._wrote.setdefault(key, set()).add(version)

    def end(self, key: Key) -> bool:
        """The pass ended; returns whether another writer changed the object meanwhile."""
        early, wrote = self._early.pop(key, set()), self._wrote.get(key, set())
        foreign = early - wrote
        self._settle(key, early & wrote)
        return bool(foreign)

    def is_foreign(self, key: Key, version: str) -> bool:
        """A watch event arrived; returns whether another writer caused it."""
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
            del self._wrote[key]  # a relist skipped our versions
        return True

    def is_stale(self, key: Key, version: str) -> bool:
        """Whether a cached version is older than our last write."""
        return any(is_newer(ours, than=version) for ours in self._wrote.get(key, ()))

    def forget(self, key: Key) -> None:
        """The object was deleted."""
        self._wrote.pop(key, None)

    def _settle(self, key: Key, seen: set[str]) -> None:
        """These versions were observed; forget them and all earlier ones."""
        wrote = self._wrote.get(key)
        if wrote is None or not seen:
            return
        left = {ours for ours in wrote if all(is_newer(ours, than=v) for v in seen)}
        if left:
            self._wrote[key] = left
        else:
            del self._wrote[key]
