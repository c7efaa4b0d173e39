"""
Ownership of guests: the mark that names a guest's owner, and the check before a write.

The mark is a line in the description (a clone takes no tags) and, from the first configuration
write, a tag that makes guests findable in ``/cluster/resources``. The description decides: a clone
inherits the tags of its template, so another owner's tag below our description does not count.
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
    """The object has another owner, or none; it is not changed."""

    reason = "ForeignGuest"


class Mark(Struct, frozen=True):
    """Identity of the object that owns a guest."""

    owner_uid: str

    @property
    def key(self) -> str:
        """Return the UID in the characters of a tag."""
        return _NOT_TAG.sub("", self.owner_uid.lower())

    @property
    def tag(self) -> str:
        return TAG_PREFIX + self.key

    @property
    def line(self) -> str:
        return f"moxwell-owner={self.owner_uid}"

    def describe(self, text: str = "") -> str:
        """Return a description with the mark below the given text."""
        kept = _LINE.sub("", text).strip()
        return f"{kept}\n\n{self.line}" if kept else self.line

    def tags(self, others: Iterable[str] = ()) -> str:
        """Return the tag list of a marked guest: the marks, then the others, without duplicates."""
        rest = (tag for tag in others if not tag.startswith(TAG_PREFIX))
        return ";".join(dict.fromkeys([FAMILY_TAG, self.tag, *rest]))


def is_helper_vm(tags: Iterable[str]) -> bool:
    """Return whether a guest with these tags is a helper VM of the CSI driver."""
    return not _HELPER_VM_TAGS.isdisjoint(tags)


def owner_in_description(text: str) -> str | None:
    """Return the UID in a description."""
    found = _LINE.search(text)
    return found[1] if found else None


def keys_in_tags(tags: str | Iterable[str]) -> tuple[str, ...]:
    """Return the owner keys in a tag list."""
    split = property_strings.tags(tags) if isinstance(tags, str) else tags
    return tuple(
        tag.removeprefix(TAG_PREFIX) for tag in map(str.lower, split) if tag.startswith(TAG_PREFIX)
    )


def owner_key(config: GuestConfig) -> str | None:
    """Return the key of a guest's owner: from the description, else from the only owner tag."""
    owner = owner_in_description(config.description)
    if owner is not None:
        return Mark(owner).key
    keys = keys_in_tags(config.tags)
    return keys[0] if len(keys) == 1 else None


def is_ours(config: GuestConfig, mark: Mark) -> bool:
    return owner_key(config) == mark.key


def verify(config: GuestConfig, mark: Mark, what: str) -> None:
    """Raise unless the guest has the mark: ``Locked`` while it is cloned, else ``Foreign``."""
    owner = owner_key(config)
    if owner == mark.key:
        return
    if config.lock == CLONING and owner_in_description(config.description) is None:
        raise errors.Locked(f"{what} is being cloned; its owner is not visible yet")
    found = f"is owned by {owner}" if owner else "has no owner mark"
    raise Foreign(f"{what} {found} and not by {mark.owner_uid}; it is not changed")
