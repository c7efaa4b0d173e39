"""
What is recorded of a command in progress: an annotation of each node claim that it deletes.

The replacements are named in it before they are created and refer to it by its id.
"""

import hashlib
from collections.abc import Iterable
from datetime import datetime

import msgspec

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.meta import Value
from moxwell.controllers.karpenter.names import COMMAND


class CommandRecord(Value, frozen=True, kw_only=True):
    """A command: why it was decided, and the names of its node claims."""

    id: str
    reason: str
    method: str
    created: datetime
    candidates: tuple[str, ...]
    replacements: tuple[str, ...] = ()

    def encoded(self) -> str:
        """The value of the annotation."""
        return msgspec.json.encode(self).decode()


def command_id(claims: Iterable[NodeClaim], now: datetime) -> str:
    """The id of a command that deletes these node claims, decided now."""
    text = "\n".join([now.isoformat(), *sorted(c.metadata.uid for c in claims)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def record_of(claim: NodeClaim) -> CommandRecord | None:
    """The command that deletes a node claim; None if there is none or it is not readable."""
    text = claim.metadata.annotations.get(COMMAND)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=CommandRecord)
    except msgspec.MsgspecError:
        return None


def records_of(claims: Iterable[NodeClaim]) -> tuple[CommandRecord, ...]:
    """The commands in progress: those of node claims that are not being deleted, by id."""
    found: dict[str, CommandRecord] = {}
    for claim in claims:
        record = record_of(claim)
        if record is not None and claim.metadata.deletion_timestamp is None:
            found.setdefault(record.id, record)
    return tuple(found[id_] for id_ in sorted(found))
