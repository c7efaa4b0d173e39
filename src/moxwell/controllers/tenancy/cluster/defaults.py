"""What a manifest need not say, and what is meant where it says nothing."""

from dataclasses import dataclass

from moxwell.api.cozystack import Kubernetes, NodeGroup
from moxwell.errors import Invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionDefaults:
    """Where nodes of a region get what a manifest does not say."""

    name: str
    pool: str = ""  # a GlobalInClusterIPPool; none: DHCP
    dns: tuple[str, ...] = ()
    bridge: str = "vmbr0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a manifest need not say."""

    regions: tuple[RegionDefaults, ...]
    version: str = "v1.34.1"
    control_plane_replicas: int = 2
    data_store: str = "default"


def version_of(app: Kubernetes, defaults: Defaults) -> str:
    """The whole version: ``v1.34`` means its first patch release that we know, else ``.0``."""
    version = app.spec.version or defaults.version
    version = version if version.startswith("v") else f"v{version}"
    if version.count(".") == 1:
        known = defaults.version
        version = known if known.startswith(f"{version}.") else f"{version}.0"
    return version


def regions_of(app: Kubernetes, group: NodeGroup | None, defaults: Defaults) -> tuple[str, ...]:
    """Where a group may be; without a word of anybody, everywhere."""
    named = (group.regions if group else ()) or app.spec.regions
    known = tuple(r.name for r in defaults.regions)
    for name in named:
        if name not in known:
            raise Invalid(f"region {name!r} is not configured: there are {', '.join(known)}")
    return named or known
