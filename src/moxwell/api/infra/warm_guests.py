"""
Warm guests: stopped clones that wait for a node claim.

A ProxmoxMachine with the annotation ``WARM_GUEST_OF`` has no Machine. Its guest is cloned, and its
disk is grown; then it stays stopped. The launch of a node claim reserves it by ``RESERVED_FOR`` and
hands it over by one write, which removes these annotations and sets the Machine as its owner.
"""

from collections.abc import Collection, Mapping

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.karpenter.annotations import MOST_PER_HOST, WARM_POOL

WARM_GUEST_OF = "moxwell.dev/warm-guest-of"  # of ProxmoxMachine: the node class
WARM_GUEST_HASH = "moxwell.dev/warm-guest-hash"  # of ProxmoxMachine: what it was made from
RESERVED_FOR = "moxwell.dev/reserved-for"  # of ProxmoxMachine: the UID of a node claim
WARM_TAG = "moxwell-warm"  # of the guest in Proxmox, until it is configured for a node claim


def is_warm(machine: ProxmoxMachine) -> bool:
    """Whether a machine waits for a node claim; a handed over machine does not."""
    return WARM_GUEST_OF in machine.metadata.annotations and not machine.spec.provider_id


def uses_no_compute(tags: Collection[str], *, has_process: bool) -> bool:
    """Whether a guest with these tags is warm: its CPUs and memory do not count as used."""
    return WARM_TAG in tags and not has_process


def count_in(annotations: Mapping[str, str]) -> int | None:
    """The guests per host that an annotation asks for; None if it is no number in the range."""
    text = annotations.get(WARM_POOL, "0").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST_PER_HOST))):
        return None
    return int(text) if int(text) <= MOST_PER_HOST else None
