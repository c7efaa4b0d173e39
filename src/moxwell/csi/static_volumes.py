"""
Parses ``features.staticVolumes``: which disks that the driver did not create a cluster may use.

For a driver of one cluster it is a list of patterns of volume ids; for an instance with hosted
tenants it is a mapping from ``namespace/cluster`` to such lists.
"""

from collections.abc import Mapping

from moxwell import config_file
from moxwell.errors import Invalid

KEY = "features.staticVolumes"


def parse_patterns(given: object) -> tuple[str, ...]:
    """Patterns of volume ids; each must name region and storage, so that none covers everything."""
    if not isinstance(given, list):
        raise Invalid(f"{KEY} must be a list of volume ids")
    for pattern in given:
        parts = pattern.split("/", 3) if isinstance(pattern, str) else []
        if len(parts) != 4 or "*" in parts[0] + parts[2] or not (parts[0] and parts[2]):
            raise Invalid(
                f"{KEY}: an entry has the form region/zone/storage/disk with wildcards in zone and "
                f"disk only, not {pattern!r}"
            )
    return tuple(given)


def parse_by_cluster(text: str) -> dict[str, tuple[str, ...]]:
    """The patterns of each hosted cluster in a configuration file."""
    given = (config_file.parse_mapping(text).get("features") or {}).get("staticVolumes") or {}
    if not isinstance(given, Mapping) or any(str(key).count("/") != 1 for key in given):
        raise Invalid(f"{KEY} must map namespace/cluster to lists of volume ids")
    return {str(cluster): parse_patterns(patterns) for cluster, patterns in given.items()}
