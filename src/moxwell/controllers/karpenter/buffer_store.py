"""
The resolved buffers of a cluster as virtual pods, and where the provisioner placed them.

It is memory only: after a restart the controller resolves every buffer again, and until then
``is_complete`` is false and nothing is disrupted.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moxwell.api.karpenter.capacity import CapacityBuffer
from moxwell.runtime.key import Key
from moxwell.scheduling.packing.buffers import BufferPlacement, virtual_pods
from moxwell.scheduling.packing.pods import PodDemand

MOST_REPLICAS = 5_000  # virtual pods of one buffer; a template with tiny requests has no bound


@dataclass(frozen=True, slots=True)
class ResolvedBuffer:
    """A buffer with its pod template; ``replicas`` of 0 if it stands for nothing."""

    buffer: CapacityBuffer
    template: Mapping[str, Any] | None = None
    replicas: int = 0


class BufferStore:
    """The buffers of one cluster."""

    def __init__(self) -> None:
        self._resolved: dict[Key, ResolvedBuffer] = {}
        self._placed: Mapping[str, BufferPlacement] = {}
        self._listeners: list[Callable[[Key], None]] = []
        self.nodes: frozenset[str] | None = None  # with virtual pods; None before the first pass

    def listen(self, listener: Callable[[Key], None]) -> None:
        """Call with the key of a buffer whose placement changed."""
        self._listeners.append(listener)

    def resolve(self, key: Key, found: ResolvedBuffer | None) -> None:
        """Remember what a buffer stands for; None removes it."""
        if found is None:
            self._resolved.pop(key, None)
        else:
            self._resolved[key] = found

    def keep(self, keys: Iterable[Key]) -> None:
        """Forget all other buffers."""
        known = set(keys)
        self._resolved = {k: r for k, r in self._resolved.items() if k in known}

    def is_complete(self, keys: Iterable[Key]) -> bool:
        """Whether every buffer was resolved and a pass has placed them."""
        wanted = set(keys)
        return wanted <= self._resolved.keys() and (not wanted or self.nodes is not None)

    def pods(self, now: float, most: int = 0) -> tuple[PodDemand, ...]:
        """The virtual pods, at most so many if ``most`` is not 0."""
        found: list[PodDemand] = []
        for _, each in sorted(self._resolved.items()):
            left = each.replicas if not most else min(each.replicas, most - len(found))
            if each.template is not None and left > 0:
                found += virtual_pods(each.buffer, each.template, left, now)
        return tuple(found)

    def placed(self, found: Mapping[str, BufferPlacement], nodes: frozenset[str]) -> None:
        """Remember where a pass placed the virtual pods, and on which existing nodes."""
        before, self._placed, self.nodes = self._placed, dict(found), nodes
        for key in self._resolved:
            if before.get(str(key)) != found.get(str(key)):
                for listener in self._listeners:
                    listener(key)

    def placement(self, key: Key) -> BufferPlacement | None:
        """Where the virtual pods of a buffer were placed last."""
        return self._placed.get(str(key))
