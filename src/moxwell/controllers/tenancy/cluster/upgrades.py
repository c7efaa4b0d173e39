"""Which changes of a cluster's Kubernetes version are possible. Pure."""

import re

from moxwell.errors import Invalid

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


def check_upgrade(running: str, wanted: str, *, rolling: bool) -> None:
    """
    Refuse a version that cannot follow the one that runs; the message names one that can.

    ``rolling`` tells that nodes of an earlier upgrade are still to change: that upgrade may be
    taken back, also to a lower version.
    """
    major, minor, patch = _parse(wanted)
    if not running:
        return
    running_major, running_minor, running_patch = _parse(running)
    lower = (major, minor) < (running_major, running_minor) or (
        (major, minor) == (running_major, running_minor) and -1 < patch < running_patch
    )
    if lower and not rolling:
        raise Invalid(f"{wanted} is older than {running}, which runs: Kubernetes has no downgrade")
    if major != running_major or minor > running_minor + 1:
        following = f"v{running_major}.{running_minor + 1}"
        raise Invalid(
            f"{wanted} skips minor versions: the cluster runs {running}, upgrade it to "
            f"{following} first"
        )


def _parse(version: str) -> tuple[int, int, int]:
    """Major, minor and patch; -1 for a patch that is not given."""
    found = _VERSION.fullmatch(version)
    if found is None:
        raise Invalid(f"{version!r} is not a Kubernetes version: write it as v1.35.0 or v1.35")
    return int(found[1]), int(found[2]), int(found[3] or -1)
