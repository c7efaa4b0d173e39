"""
The name of one object, and nothing else about it.

A key is all that goes on a queue: never the event that put it there, so a controller cannot become
edge-triggered by accident. What the object is now is looked up when its turn comes.
"""

from typing import NamedTuple


class Key(NamedTuple):
    """``namespace`` is empty for what lives in none."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name
