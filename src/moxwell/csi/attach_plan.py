"""
Several wishes about one guest's disks, turned into one write of its configuration.

In: what the guest is (its configuration, pending changes merged in) and the wishes that arrived
together. Out: the slots to set and to delete, and for each wish what to expect or why not. Pure.
The surprise: a volume is recognised by its whole name, never by a part of it, and a guest's own
boot disk is never anybody's volume.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from moxwell.csi.errors import Incompatible, NoRoom, NotNow
from moxwell.csi.ids import Identity
from moxwell.errors import Missing, MoxwellError
from moxwell.pve import property_strings
from moxwell.pve.errors import Locked
from moxwell.pve.guests import GuestConfig

SLOTS = tuple(f"scsi{n}" for n in range(1, 31))  # scsi0 is the boot disk's
_ORDER = re.compile(r"order=([\w;]*)")


@dataclass(frozen=True)
class Attach:
    """The volume shall be there, with this identity and these options."""

    volid: str
    identity: Identity
    options: Mapping[str, str] = field(default_factory=dict)

    def drive(self) -> str:
        own = {"wwn": self.identity.wwn, "serial": self.identity.serial}
        return property_strings.render(self.volid, {**self.options, **own})


@dataclass(frozen=True)
class Detach:
    """The volume shall not be there."""

    volid: str


@dataclass(frozen=True)
class Adjust:
    """The volume, if it is there, shall have these options; None takes one away."""

    volid: str
    options: Mapping[str, str | None] = field(default_factory=dict)


Wish = Attach | Detach | Adjust


@dataclass(frozen=True)
class Plan:
    """One write, and per wish its slot (empty: nothing to expect) or its refusal."""

    changes: dict[str, str] = field(default_factory=dict)
    deletes: tuple[str, ...] = ()
    slots: dict[int, str] = field(default_factory=dict)
    refusals: dict[int, MoxwellError] = field(default_factory=dict)

    @property
    def writes(self) -> bool:
        return bool(self.changes or self.deletes)


def boot_slots(config: GuestConfig) -> frozenset[str]:
    match = _ORDER.search(config.get("boot"))
    return frozenset(match[1].split(";")) if match else frozenset({config.get("bootdisk")})


def make_plan(config: GuestConfig, wishes: Sequence[Wish]) -> Plan:
    """What to write so that every wish comes true, as far as it can."""
    if config.lock:
        raise Locked(f"the guest is locked ({config.lock})")
    plan = _Planning(config)
    # What leaves makes room for what comes.
    ranked = sorted(enumerate(wishes), key=lambda pair: not isinstance(pair[1], Detach))
    for index, wish in ranked:
        try:
            plan.slots[index] = plan.grant(wish)
        except MoxwellError as refusal:
            plan.refusals[index] = refusal
    return Plan(plan.changes, tuple(plan.deletes), plan.slots, plan.refusals)


class _Planning:
    """The configuration as it is becoming."""

    def __init__(self, config: GuestConfig) -> None:
        self._config = config
        self._boot = boot_slots(config)
        self._drives = dict(config.disks)
        self.changes: dict[str, str] = {}
        self.deletes: list[str] = []
        self.slots: dict[int, str] = {}
        self.refusals: dict[int, MoxwellError] = {}

    def _slot_of(self, volid: str) -> str | None:
        held = (s for s, text in self._drives.items() if property_strings.volume(text) == volid)
        return next(held, None)

    def grant(self, wish: Wish) -> str:
        slot = self._slot_of(wish.volid)
        if slot is not None and slot in self._boot:
            raise NotNow(f"{wish.volid} is the guest's own boot disk ({slot})")
        if isinstance(wish, Attach):
            return self._same(wish, slot) if slot else self._put(wish)
        if slot is None:
            return self._absent(wish)
        if isinstance(wish, Detach):
            del self._drives[slot]
            self.deletes.append(slot)
            return slot
        return self._adjust(wish, slot)

    def _absent(self, wish: Detach | Adjust) -> str:
        if isinstance(wish, Adjust):
            raise Missing(f"{wish.volid} is not attached to this guest")
        return ""

    def _same(self, wish: Attach, slot: str) -> str:
        have = property_strings.parse(self._drives[slot]).get("ro", "0")
        if have != wish.options.get("ro", "0"):
            words = "read-only" if have == "1" else "for writing"
            raise Incompatible(f"{wish.volid} is attached already, {words}")
        return slot

    def _put(self, wish: Attach) -> str:
        free = (s for s in SLOTS if s not in self._drives and s not in self._config)
        slot = next(free, None)
        if slot is None:
            freed = (s for s in self.deletes if s in SLOTS and s not in self._drives)
            if next(freed, None) is not None:
                raise Locked("a slot is being freed; try again")
            raise NoRoom(f"all {len(SLOTS)} slots for volumes are taken on this guest")
        self._drives[slot] = self.changes[slot] = wish.drive()
        return slot

    def _adjust(self, wish: Adjust, slot: str) -> str:
        parts = property_strings.parse(self._drives[slot])
        first = parts.pop("", None) or parts.pop("file", None) or wish.volid
        options: dict[str, str | None] = {k: v for k, v in parts.items() if k != "size"}
        wanted = {**options, **wish.options}
        if {k: v for k, v in wanted.items() if v is not None} != options:
            kept = {**wanted, "size": parts.get("size")}
            self._drives[slot] = self.changes[slot] = property_strings.render(first, kept)
        return slot


def is_live(wish: Wish, slot: str, live: GuestConfig) -> bool:
    """Did the running guest take it? ``live`` is the view without pending changes."""
    if isinstance(wish, Detach):
        return live.slot_of(wish.volid) is None
    if live.slot_of(wish.volid) != slot:
        return False
    if isinstance(wish, Attach):
        return True
    have = property_strings.parse(live.get(slot))
    return all(have.get(k) == v for k, v in wish.options.items())
