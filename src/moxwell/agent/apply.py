"""Applies a plan to the host, and undoes earlier changes that the plan no longer contains."""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moxwell.agent.host_files import HostFiles
from moxwell.agent.plan import HostChanges

Affinity = Callable[[int], Iterable[int]]
SetAffinity = Callable[[int, Iterable[int]], None]


class Host:
    """Sets affinities and files; ``record`` keeps the previous values."""

    def __init__(
        self,
        files: HostFiles,
        record: Path,
        *,
        get_affinity: Affinity = os.sched_getaffinity,
        set_affinity: SetAffinity = os.sched_setaffinity,
    ) -> None:
        self._files, self._record = files, record
        self._get, self._set = get_affinity, set_affinity

    def apply(self, changes: HostChanges) -> list[str]:
        """Bring the host to the planned state; returns what was done or failed."""
        before = self._read()
        done = self._undo_rest(before, changes)
        for thread, cpus in sorted(changes.threads.items()):
            done += self._set_thread(before, thread, cpus)
        for name, text in sorted(changes.files.items()):
            done += self._set_file(before, name, text)
        self._write(before)
        return done

    def undo(self) -> list[str]:
        """Restore everything that was changed."""
        return self.apply(HostChanges())

    def _undo_rest(self, before: dict[str, Any], changes: HostChanges) -> list[str]:
        done = []
        for thread in [t for t in before["threads"] if int(t) not in changes.threads]:
            done += self._try(f"thread {thread}", self._set, int(thread), before["threads"][thread])
            del before["threads"][thread]
        for name in [n for n in before["files"] if n not in changes.files]:
            done += self._try(name, self._files.write, name, before["files"][name])
            del before["files"][name]
        return done

    def _set_thread(self, before: dict[str, Any], thread: int, cpus: frozenset[int]) -> list[str]:
        try:
            current = set(self._get(thread))
        except OSError:
            return []  # the thread has ended
        if current == cpus:
            return []
        before["threads"].setdefault(str(thread), sorted(current))
        self._write(before)
        return self._try(f"thread {thread} on CPUs {sorted(cpus)}", self._set, thread, cpus)

    def _set_file(self, before: dict[str, Any], name: str, text: str) -> list[str]:
        current = self._files.read(name)
        if not current or current == text:
            return []
        before["files"].setdefault(name, current)
        self._write(before)
        return self._try(f"{name} {text}", self._files.write, name, text)

    def _try(self, what: str, run: Callable[..., None], *arguments: Any) -> list[str]:
        try:
            run(*arguments)
        except OSError as error:
            return [f"{what}: {error.strerror}"]
        return [what]

    def _read(self) -> dict[str, Any]:
        """Read the record; it is written before each change, so that a crash loses nothing."""
        empty: dict[str, Any] = {"threads": {}, "files": {}}
        try:
            found = json.loads(self._record.read_text())
        except (OSError, ValueError):
            return empty
        return found if isinstance(found, dict) and empty.keys() <= found.keys() else empty

    def _write(self, before: dict[str, Any]) -> None:
        self._record.parent.mkdir(parents=True, exist_ok=True)
        new = self._record.with_suffix(".new")
        new.write_text(json.dumps(before))
        new.replace(self._record)
