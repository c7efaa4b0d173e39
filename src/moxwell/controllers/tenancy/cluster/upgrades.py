"""Which changes of a cluster's Kubernetes version are possible. Pure."""

import re
from collections.abc import Collection

from moxwell.errors import Invalid

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


def check_upgrade(running: str, wanted: str, *, nodes: Collection[str] = ()) -> None:
    """
    Refuse a version that cannot follow the one that runs; the message names one that can.

    A lower version takes an upgrade back, which is possible while some of the nodes still have it.
    """
    new = _parse(wanted)
    if not running:
        return
    old = _parse(running)
    if _is_lower(new, old) and not any(_has(_parse(node), new) for node in nodes):
        raise Invalid(f"{wanted} is older than {running}, which runs: Kubernetes has no downgrade")
    if new[0] != old[0] or new[1] > old[1] + 1:
        following = f"v{old[0]}.{old[1] + 1}"
        raise Invalid(
            f"{wanted} skips minor versions: the cluster runs {running}, upgrade it to "
            f"{following} first"
        )


def control_plane_version(running: str, wanted: str) -> str:
    """
    The version of a control plane: the wanted one, or the one that runs if that is newer.

    A control plane cannot be downgraded. An upgrade that is taken back leaves it where it is, and
    its nodes one minor version behind, which Kubernetes allows.
    """
    return running if running and _is_lower(_parse(wanted), _parse(running)) else wanted


def is_reached(running: str, wanted: str) -> bool:
    """Whether a control plane has the wanted version, or a newer one that cannot be taken back."""
    if not running:
        return False
    return not _is_lower(_parse(running), _parse(wanted))


def _has(node: tuple[int, int, int], version: tuple[int, int, int]) -> bool:
    """Whether a node has a version, whose patch may be left open."""
    return node[:2] == version[:2] and version[2] in (-1, node[2])


def _is_lower(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    """Whether a version is lower; without a patch it is any of its minor version."""
    if one[:2] != other[:2]:
        return one[:2] < other[:2]
    return -1 < one[2] < other[2]


def _parse(version: str) -> tuple[int, int, int]:
    """Major, minor and patch; -1 for a patch that is not given."""
    found = _VERSION.fullmatch(version)
    if found is None:
        raise Invalid(f"{version!r} is not a Kubernetes version: write it as v1.35.0 or v1.35")
    return int(found[1]), int(found[2]), int(found[3] or -1)
