"""What a build observes in Proxmox: hosts with storages, copies, image files, running tasks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import ObservedStorage


@dataclass(frozen=True, slots=True)
class TemplateCopy:
    """A guest that the owner of the template has on a host."""

    vmid: int
    host: str
    revision: str
    config: GuestConfig = field(compare=False)
    running: bool = False
    linked_clones: tuple[int, ...] = ()  # VMIDs
    uptime_seconds: int = 0
    pool: str | None = None  # None: the inventory does not have the guest yet
    result: str = ""  # of a builder that runs, see moxwell.bootstrap.baking

    @property
    def finished(self) -> bool:
        return self.config.template and not self.config.lock


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image file on a storage, as one host sees it."""

    host: str
    storage: str
    volid: str


@dataclass(frozen=True, slots=True)
class VmidState:
    """The next VMID for a copy on a host; ``creating``: a guest is being created there."""

    vmid: int
    creating: bool = False
    stale: bool = False  # locked by ``create`` although no task runs
    hidden: bool = False  # a guest is there that the token may not read; it may be the copy


@dataclass(frozen=True, slots=True)
class ObservedBuild:
    """A region as the plan of one template sees it."""

    region: str
    online: Mapping[str, bool] = field(default_factory=dict)  # every host
    storages: Mapping[tuple[str, str], ObservedStorage] = field(default_factory=dict)
    copies: tuple[TemplateCopy, ...] = ()
    images: tuple[ImageFile, ...] = ()  # those of the owner, and the source if it is a volume
    isos: tuple[ImageFile, ...] = ()  # bootstrap ISOs of builders of the owner
    vmids: Mapping[str, VmidState] = field(default_factory=dict)  # by host
    busy: frozenset[str] = frozenset()  # hosts on which a task of this build runs
