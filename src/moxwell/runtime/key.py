"""
Namespace and name of an object.

The queue holds keys only, never events, so that controllers are level-triggered.
"""

from typing import NamedTuple


class Key(NamedTuple):
    """``namespace`` is empty for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name
