"""
Ownership of guests: the mark that names a guest's owner, and the check before a write.

The mark is a line in the description (a clone takes no tags) and, from the first configuration
write, a tag that makes guests findable in ``/cluster/resources``. The description decides: a clone
inherits the tags of its template, so another owner's tag below our description does not count.
A mark also binds the guest to the namespace and cluster of its owner, so that an object elsewhere
with a copy of the UID owns nothing. Guests of earlier versions have no binding until their owner
adds it.
"""

import base64
import hashlib
import re
from collections.abc import Iterable

from msgspec import Struct

from moxwell.errors import Denied
from moxwell.pve import errors, property_strings
from moxwell.pve.guests import CLONING, GuestConfig

FAMILY_TAG = "moxwell"
TAG_PREFIX = "mox-"
CLUSTER_TAG_PREFIX = "moxc-"
ADOPT_TAG_PREFIX = "moxwell-adopt."  # set by the operator: this cluster may adopt the guest
_RESERVED_TAGS = (TAG_PREFIX, CLUSTER_TAG_PREFIX, FAMILY_TAG)
HELPER_VM_TAG = "moxwell-csi-helper"  # a helper VM of the CSI driver, which owns no machine
_HELPER_VM_TAGS = frozenset({HELPER_VM_TAG, "moxwell-csi-shell"})  # the second is an older name
_LINE = re.compile(r"^\s*moxwell-owner=(\S+)\s*$", re.MULTILINE)
_CLUSTER_LINE = re.compile(r"^\s*moxwell-cluster=(\S+)\s*$", re.MULTILINE)
_NOT_TAG = re.compile(r"[^a-z0-9]")


class Foreign(Denied):
    """The object has another owner, or none; it is not changed."""

    reason = "ForeignGuest"


class Mark(Struct, frozen=True):
    """Identity of the object that owns a guest, and its ``namespace/cluster``."""

    owner_uid: str
    cluster: str = ""  # empty: not bound to a cluster

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

    @property
    def lines(self) -> str:
        """The lines of the mark in a description."""
        return f"{self.line}\nmoxwell-cluster={self.cluster}" if self.cluster else self.line

    @property
    def cluster_key(self) -> str:
        """Return the cluster in the characters of a tag and of a file name."""
        return cluster_key(self.cluster) if self.cluster else ""

    @property
    def cluster_tag(self) -> str:
        return CLUSTER_TAG_PREFIX + self.cluster_key if self.cluster else ""

    @property
    def adopt_tag(self) -> str:
        """Return the tag by which the operator lets this cluster adopt a guest."""
        return ADOPT_TAG_PREFIX + self.cluster.replace("/", ".").lower() if self.cluster else ""

    def describe(self, text: str = "") -> str:
        """Return a description with the mark below the given text."""
        kept = _CLUSTER_LINE.sub("", _LINE.sub("", text)).strip()
        return f"{kept}\n\n{self.lines}" if kept else self.lines

    def tags(self, others: Iterable[str] = ()) -> str:
        """Return the tag list of a marked guest: the marks, then the others, without duplicates."""
        marks = (TAG_PREFIX, CLUSTER_TAG_PREFIX, ADOPT_TAG_PREFIX)
        rest = (tag for tag in others if not tag.startswith(marks))
        own = (tag for tag in (FAMILY_TAG, self.tag, self.cluster_tag) if tag)
        return ";".join(dict.fromkeys([*own, *rest]))


def cluster_key(cluster: str) -> str:
    """Return a ``namespace/cluster`` in the characters of a tag."""
    return base64.b32encode(hashlib.sha256(cluster.encode()).digest()[:10]).decode().lower()


def user_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the tags without those that have a meaning for Moxwell."""
    return tuple(tag for tag in tags if not is_reserved_tag(tag))


def is_reserved_tag(tag: str) -> bool:
    """Return whether only Moxwell or the operator may set a tag."""
    return tag.lower().startswith(_RESERVED_TAGS)


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


def binding_key(config: GuestConfig) -> str | None:
    """Return the key of the cluster that a guest is bound to; None if it is not bound.

    A tag counts only beside the tag of the guest's owner, because a clone inherits tags.
    """
    line = _CLUSTER_LINE.search(config.description)
    if line is not None:
        return cluster_key(line[1])
    if keys_in_tags(config.tags) != (owner_key(config),):
        return None
    keys = _cluster_keys(config.tags)
    return keys[0] if len(keys) == 1 else None


def cluster_of(config: GuestConfig) -> str:
    """Return the ``namespace/cluster`` in the description of a guest; empty if it is not bound."""
    line = _CLUSTER_LINE.search(config.description)
    return line[1] if line else ""


def _cluster_keys(tags: Iterable[str]) -> tuple[str, ...]:
    prefix = CLUSTER_TAG_PREFIX
    return tuple(t.removeprefix(prefix) for t in map(str.lower, tags) if t.startswith(prefix))


def has_mark_tags(tags: Iterable[str], mark: Mark) -> bool:
    """Return whether the tags are those of the mark and of no other owner or cluster."""
    known = tuple(tags)
    bound = _cluster_keys(known) == ((mark.cluster_key,) if mark.cluster else ())
    return keys_in_tags(known) == (mark.key,) and (bound or not mark.cluster)


def is_ours(config: GuestConfig, mark: Mark) -> bool:
    """Return whether the owner is that of the mark and no other cluster is bound to the guest."""
    bound = binding_key(config) if mark.cluster else None
    return owner_key(config) == mark.key and bound in (None, mark.cluster_key)


def verify(config: GuestConfig, mark: Mark, what: str) -> None:
    """Raise unless the guest has the mark: ``Locked`` while it is cloned, else ``Foreign``."""
    if is_ours(config, mark):
        return
    owner = owner_key(config)
    if owner == mark.key:
        raise Foreign(f"{what} is bound to another cluster than {mark.cluster}; it is not changed")
    if config.lock == CLONING and owner_in_description(config.description) is None:
        raise errors.Locked(f"{what} is being cloned; its owner is not visible yet")
    found = f"is owned by {owner}" if owner else "has no owner mark"
    raise Foreign(f"{what} {found} and not by {mark.owner_uid}; it is not changed")
