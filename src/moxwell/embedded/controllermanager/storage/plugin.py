"""
The Controller service of a CSI driver as a Python protocol, with plain values.

Every call is idempotent and raises an error of :mod:`moxwell.errors`. ``StorageExhausted`` is
RESOURCE_EXHAUSTED of CSI: a claim that waits for its consumer is then scheduled elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from moxwell.errors import Busy


class StorageExhausted(Busy):
    """The storage has no capacity for a volume where it was requested."""

    reason = "Exhausted"


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeRequest:
    """The volume to create for a claim (CreateVolume)."""

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
class ProvisionedVolume:
    """A volume that the driver has created."""

    handle: str
    size: int
    context: Mapping[str, str] = field(default_factory=dict)
    segments: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRequest:
    """A volume to attach to a node (ControllerPublishVolume)."""

    handle: str
    node: str  # the node ID of the CSINode
    context: Mapping[str, str] = field(default_factory=dict)
    fs_type: str = ""
    block: bool = False
    read_only: bool = False
    modes: tuple[str, ...] = ("ReadWriteOnce",)


@dataclass(frozen=True, slots=True)
class DriverSnapshot:
    """A snapshot that the driver has taken."""

    handle: str
    size: int
    created: int  # seconds since 1970
    ready: bool


class CSIPlugin(Protocol):
    """The Controller service of a CSI driver."""

    @property
    def name(self) -> str: ...

    async def create(self, request: VolumeRequest) -> ProvisionedVolume: ...

    async def delete(self, handle: str) -> None: ...

    async def publish(self, request: PublishRequest) -> Mapping[str, str]: ...

    async def unpublish(self, handle: str, node: str) -> None: ...

    async def expand(self, handle: str, size: int, *, block: bool) -> tuple[int, bool]:
        """The new size, and whether the node must grow the file system."""
        ...

    async def capacity(
        self, parameters: Mapping[str, str], segments: Mapping[str, str]
    ) -> tuple[int, int]:
        """Free bytes, and the size of the largest volume that can be created."""
        ...

    async def create_snapshot(
        self, name: str, source: str, parameters: Mapping[str, str]
    ) -> DriverSnapshot: ...

    async def delete_snapshot(self, handle: str) -> None: ...
