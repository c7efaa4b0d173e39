"""
Marks: whose a guest is, written on the guest itself; and the refusal to touch what is not ours.

In: the UID of the object that owns a guest, and a guest's description and tags. Out: the texts to
write, or who the owner is. A clone takes no tags, so the description carries the mark from birth
and is believed first; tags follow with the first configuration write and make guests findable in
the one list that is polled. The surprise: a clone inherits its template's tags, so a foreign tag
under our own description is not foreign.
"""

import re
from collections.abc import Iterable

from msgspec import Struct

from moxwell.errors import Denied
from moxwell.pve import errors, property_strings
from moxwell.pve.guests import CLONING, GuestConfig

FAMILY_TAG = "moxwell"
TAG_PREFIX = "mox-"
HELPER_VM_TAG = "moxwell-csi-helper"  # a helper VM of the CSI driver, which owns no machine
_HELPER_VM_TAGS = frozenset({HELPER_VM_TAG, "moxwell-csi-shell"})  # the second is an older name
_LINE = re.compile(r"^\s*moxwell-owner=(\S+)\s*$", re.MULTILINE)
_NOT_TAG = re.compile(r"[^a-z0-9]")


class Foreign(Denied):
    """The guest bears somebody else's mark, or none: it is not touched."""

    reason = "ForeignGuest"


class Mark(Struct, frozen=True):
    """The identity of the object that owns a guest."""

    owner_uid: str

    @property
    def key(self) -> str:
        """The UID as tags can hold it."""
        return _NOT_TAG.sub("", self.owner_uid.lower())

    @property
    def tag(self) -> str:
        return TAG_PREFIX + self.key

    @property
    def line(self) -> str:
        return f"moxwell-owner={self.owner_uid}"

    def describe(self, text: str = "") -> str:
        """A description that holds the mark below a person's text."""
        kept = _LINE.sub("", text).strip()
        return f"{kept}\n\n{self.line}" if kept else self.line

    def tags(self, others: Iterable[str] = ()) -> str:
        """The tag list of a marked guest: ours, then the others, none twice."""
        rest = (tag for tag in others if not tag.startswith(TAG_PREFIX))
        return ";".join(dict.fromkeys([FAMILY_TAG, self.tag, *rest]))


def is_helper_vm(tags: Iterable[str]) -> bool:
    """Return whether a guest with these tags is a helper VM of the CSI driver."""
    return not _HELPER_VM_TAGS.isdisjoint(tags)


def owner_in_description(text: str) -> str | None:
    """The UID that a description names."""
    found = _LINE.search(text)
    return found[1] if found else None


def keys_in_tags(tags: str | Iterable[str]) -> tuple[str, ...]:
    """The owner keys among tags."""
    split = property_strings.tags(tags) if isinstance(tags, str) else tags
    return tuple(
        tag.removeprefix(TAG_PREFIX) for tag in map(str.lower, split) if tag.startswith(TAG_PREFIX)
    )


def owner_key(config: GuestConfig) -> str | None:
    """The key of a guest's owner: by description, else by the only owner tag."""
    owner = owner_in_description(config.description)
    if owner is not None:
        return Mark(owner).key
    keys = keys_in_tags(config.tags)
    return keys[0] if len(keys) == 1 else None


def is_ours(config: GuestConfig, mark: Mark) -> bool:
    return owner_key(config) == mark.key


def verify(config: GuestConfig, mark: Mark, what: str) -> None:
    """Raise unless the guest is the mark's: ``Locked`` while it is being cloned, else Foreign."""
    owner = owner_key(config)
    if owner == mark.key:
        return
    if config.lock == CLONING and owner_in_description(config.description) is None:
        raise errors.Locked(f"{what} is being cloned; its owner is not visible yet")
    whose = f"belongs to {owner}" if owner else "bears no mark"
    raise Foreign(f"{what} {whose}, not to {mark.owner_uid}; it is left alone")
