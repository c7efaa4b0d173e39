"""
The colour and pattern of each cluster, chosen by its name.

A cluster keeps its look while others come and go. If two names choose the same look, the younger
cluster gets the next free one; beyond 24 clusters looks repeat and the name tells them apart.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from moxwell.web.model import ClusterView

HUES, PATTERNS = 6, 4
LOOKS = HUES * PATTERNS


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """The number of a colour and of a pattern in the style sheets."""

    hue: int
    pattern: int


class ClusterLooks:
    """Remembers the looks of the clusters that exist."""

    def __init__(self) -> None:
        self._chosen: dict[str, int] = {}

    def assign(self, clusters: Iterable[ClusterView]) -> dict[str, ClusterLook]:
        """The look of each cluster, by namespace and name."""
        ordered = sorted(
            clusters, key=lambda c: (c.created is None, c.created, c.namespace, c.name)
        )
        keys = [f"{c.namespace}/{c.name}" for c in ordered]
        self._chosen = {key: self._chosen[key] for key in keys if key in self._chosen}
        for key in keys:
            self._chosen.setdefault(key, self._next_free(preferred(key)))
        return {key: ClusterLook(n % HUES, n // HUES) for key, n in self._chosen.items()}

    def _next_free(self, wanted: int) -> int:
        taken = set(self._chosen.values())
        row = ((wanted + step) % LOOKS for step in range(LOOKS))
        return next((number for number in row if number not in taken), wanted)


def preferred(key: str) -> int:
    """The look that a name chooses."""
    return zlib.crc32(key.encode()) % LOOKS
