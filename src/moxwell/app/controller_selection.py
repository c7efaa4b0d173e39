"""
Parses ``--controllers``: our groups, and the names of a cloud controller manager.

As there, ``cloud-node`` and ``cloud-node-controller`` are the same, ``-name`` disables a controller
and ``*`` enables all of the cloud's. ``route`` is accepted and runs nothing: Proxmox has no routes.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from moxwell.controllers.cloud.loops import LOOPS
from moxwell.errors import Invalid

GROUPS = ("infra", "tenancy", "karpenter")
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
class ControllerSelection:
    """Which controllers run."""

    groups: frozenset[str]
    loops: tuple[str, ...]  # the cloud controllers

    @property
    def only_cloud(self) -> bool:
        """Whether only cloud controllers run, as in a cloud controller manager."""
        return not self.groups


def choose(names: Iterable[str]) -> ControllerSelection:
    """Parse a list of names; the last mention of each controller wins."""
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
            raise Invalid(f"unknown controllers {given!r}: choose from {every}")
    return ControllerSelection(frozenset(groups), tuple(loop for loop in LOOPS if loops.get(loop)))
