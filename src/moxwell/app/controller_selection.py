"""
Which controllers run: the groups of ours, and the names that cloud controller managers know.

``cloud-node`` and ``cloud-node-controller`` are one; ``-name`` takes one away and ``*`` is all of
the cloud's, as with any cloud controller manager. Routes are nobody's business on Proxmox: the name
is accepted and nothing runs.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from moxwell.controllers.cloud.setup import LOOPS
from moxwell.errors import Invalid

GROUPS = ("infra", "tenancy")
CLOUD: dict[str, tuple[str, ...]] = {
    "*": LOOPS,
    "cloud": LOOPS,
    "cloud-node": ("cloud.node",),
    "cloud-node-lifecycle": ("cloud.lifecycle",),
    "service": ("cloud.service",),
    "service-lb": ("cloud.service",),
    "route": (),
    "node-route": (),
}


@dataclass(frozen=True, slots=True)
class Chosen:
    """What runs."""

    groups: frozenset[str]
    loops: tuple[str, ...]  # of the cloud

    @property
    def only_cloud(self) -> bool:
        """It stands in for a cloud controller manager."""
        return not self.groups


def choose(names: Iterable[str]) -> Chosen:
    """What a list of names means; the last word about each wins."""
    groups: set[str] = set()
    loops: dict[str, bool] = {}
    for given in names:
        name, on = given.removeprefix("-"), not given.startswith("-")
        known = name.removesuffix("-controller")
        if name in GROUPS and on:
            groups.add(name)
        elif known in CLOUD:
            loops.update(dict.fromkeys(CLOUD[known], on))
        else:
            every = ", ".join((*GROUPS, *CLOUD))
            raise Invalid(f"there are no controllers {given!r}: choose from {every}")
    return Chosen(frozenset(groups), tuple(loop for loop in LOOPS if loops.get(loop)))
