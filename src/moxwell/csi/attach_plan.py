"""
Plans one configuration write for several requests to attach, detach or update disks of a guest.

Pure. A volume is identified by its whole Proxmox volume id. The boot disk of a guest is never
treated as a volume.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from moxwell.csi.errors import FailedPrecondition, Incompatible, InsufficientCapacity
from moxwell.csi.ids import DiskIdentity
from moxwell.errors import Missing, MoxwellError
from moxwell.pve import property_strings
from moxwell.pve.errors import Locked
from moxwell.pve.guests import GuestConfig

SLOTS = tuple(f"scsi{n}" for n in range(1, 31))  # scsi0 is for the boot disk
_BOOT_ORDER = re.compile(r"order=([\w;]*)")


@dataclass(frozen=True)
class AttachRequest:
    """Attach a volume with this WWN, serial and drive options."""

    volid: str
    identity: DiskIdentity
    options: Mapping[str, str] = field(default_factory=dict)

    def drive(self) -> str:
        identity = {"wwn": self.identity.wwn, "serial": self.identity.serial}
        return property_strings.render(self.volid, {**self.options, **identity})


@dataclass(frozen=True)
class DetachRequest:
    """Detach a volume."""

    volid: str


@dataclass(frozen=True)
class UpdateRequest:
    """Change drive options of an attached volume; None removes an option."""

    volid: str
    options: Mapping[str, str | None] = field(default_factory=dict)


DiskRequest = AttachRequest | DetachRequest | UpdateRequest


@dataclass(frozen=True)
class AttachPlan:
    """One configuration write; per request its slot ("" if none) or the error that rejects it."""

    changes: dict[str, str] = field(default_factory=dict)
    deletes: tuple[str, ...] = ()
    slots: dict[int, str] = field(default_factory=dict)
    rejections: dict[int, MoxwellError] = field(default_factory=dict)

    @property
    def writes(self) -> bool:
        return bool(self.changes or self.deletes)


def boot_slots(config: GuestConfig) -> frozenset[str]:
    match = _BOOT_ORDER.search(config.get("boot"))
    return frozenset(match[1].split(";")) if match else frozenset({config.get("bootdisk")})


def make_plan(config: GuestConfig, requests: Sequence[DiskRequest]) -> AttachPlan:
    """Plan the write that satisfies all requests that can be satisfied."""
    if config.lock:
        raise Locked(f"the guest is locked ({config.lock})")
    planner = _Planner(config)
    # Detaches first, so that their slots are known to be in release.
    ordered = sorted(enumerate(requests), key=lambda pair: not isinstance(pair[1], DetachRequest))
    for index, request in ordered:
        try:
            planner.slots[index] = planner.assign(request)
        except MoxwellError as error:
            planner.rejections[index] = error
    return AttachPlan(planner.changes, tuple(planner.deletes), planner.slots, planner.rejections)


class _Planner:
    """The configuration after the requests planned so far."""

    def __init__(self, config: GuestConfig) -> None:
        self._config = config
        self._boot = boot_slots(config)
        self._drives = dict(config.disks)
        self.changes: dict[str, str] = {}
        self.deletes: list[str] = []
        self.slots: dict[int, str] = {}
        self.rejections: dict[int, MoxwellError] = {}

    def _slot_of(self, volid: str) -> str | None:
        slots = (s for s, text in self._drives.items() if property_strings.volume(text) == volid)
        return next(slots, None)

    def assign(self, request: DiskRequest) -> str:
        """Plan one request and return its slot."""
        slot = self._slot_of(request.volid)
        if slot is not None and slot in self._boot:
            raise FailedPrecondition(f"{request.volid} is the boot disk of the guest ({slot})")
        if isinstance(request, AttachRequest):
            return self._attached(request, slot) if slot else self._attach(request)
        if slot is None:
            return self._not_attached(request)
        if isinstance(request, DetachRequest):
            del self._drives[slot]
            self.deletes.append(slot)
            return slot
        return self._update(request, slot)

    def _not_attached(self, request: DetachRequest | UpdateRequest) -> str:
        if isinstance(request, UpdateRequest):
            raise Missing(f"{request.volid} is not attached to this guest")
        return ""

    def _attached(self, request: AttachRequest, slot: str) -> str:
        read_only = property_strings.parse(self._drives[slot]).get("ro", "0")
        if read_only != request.options.get("ro", "0"):
            mode = "read-only" if read_only == "1" else "read-write"
            raise Incompatible(f"{request.volid} is already attached {mode}")
        return slot

    def _attach(self, request: AttachRequest) -> str:
        free = (s for s in SLOTS if s not in self._drives and s not in self._config)
        slot = next(free, None)
        if slot is None:
            freed = (s for s in self.deletes if s in SLOTS and s not in self._drives)
            if next(freed, None) is not None:
                raise Locked("a slot is being freed; try again")
            raise InsufficientCapacity(f"all {len(SLOTS)} slots for volumes are in use")
        self._drives[slot] = self.changes[slot] = request.drive()
        return slot

    def _update(self, request: UpdateRequest, slot: str) -> str:
        parts = property_strings.parse(self._drives[slot])
        first = parts.pop("", None) or parts.pop("file", None) or request.volid
        options: dict[str, str | None] = {k: v for k, v in parts.items() if k != "size"}
        updated = {**options, **request.options}
        if {k: v for k, v in updated.items() if v is not None} != options:
            drive = {**updated, "size": parts.get("size")}
            self._drives[slot] = self.changes[slot] = property_strings.render(first, drive)
        return slot


def is_applied(request: DiskRequest, slot: str, live: GuestConfig) -> bool:
    """Return whether the running guest has the change; ``live`` excludes pending changes."""
    if isinstance(request, DetachRequest):
        return live.slot_of(request.volid) is None
    if live.slot_of(request.volid) != slot:
        return False
    if isinstance(request, AttachRequest):
        return True
    drive = property_strings.parse(live.get(slot))
    return all(drive.get(k) == v for k, v in request.options.items())
