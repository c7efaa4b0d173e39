"""
What the stand-ins ask of whoever stores: the calls of a CSI controller, as plain values.

In: names, sizes, parameters, where. Out: a handle and what belongs to it, or an error of
:mod:`moxwell.errors`. Its own class here is :class:`Exhausted`: no room just there, so that a
waiting claim is sent elsewhere instead of being tried for ever.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from moxwell.errors import Busy


class Exhausted(Busy):
    """There is no room where it was asked for."""

    reason = "Exhausted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A volume that a claim asks for."""

    name: str
    size: int
    parameters: Mapping[str, str] = field(default_factory=dict)
    segments: tuple[Mapping[str, str], ...] = ()
    fs_type: str = ""
    block: bool = False
    modes: tuple[str, ...] = ("ReadWriteOnce",)
    from_volume: str = ""
    from_snapshot: str = ""


@dataclass(frozen=True, slots=True)
class Stored:
    """A volume that is there."""

    handle: str
    size: int
    context: Mapping[str, str] = field(default_factory=dict)
    segments: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How a volume is to be attached."""

    handle: str
    node: str  # the node's id, as its CSINode says
    context: Mapping[str, str] = field(default_factory=dict)
    fs_type: str = ""
    block: bool = False
    read_only: bool = False
    modes: tuple[str, ...] = ("ReadWriteOnce",)


@dataclass(frozen=True, slots=True)
class Taken:
    """A snapshot."""

    handle: str
    size: int
    made: int  # seconds since 1970
    ready: bool


class Plugin(Protocol):
    """A CSI driver's controller."""

    @property
    def name(self) -> str: ...

    async def create(self, order: Order) -> Stored: ...

    async def delete(self, handle: str) -> None: ...

    async def publish(self, use: Use) -> Mapping[str, str]: ...

    async def unpublish(self, handle: str, node: str) -> None: ...

    async def expand(self, handle: str, size: int, *, block: bool) -> tuple[int, bool]:
        """The size it has now, and whether the node must grow the file system."""
        ...

    async def room(
        self, parameters: Mapping[str, str], segments: Mapping[str, str]
    ) -> tuple[int, int]:
        """Free bytes, and the largest volume that fits."""
        ...

    async def snapshot(self, name: str, source: str, parameters: Mapping[str, str]) -> Taken: ...

    async def forget_snapshot(self, handle: str) -> None: ...
