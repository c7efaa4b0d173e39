"""
What is known of the regions now: hosts, storages, bridges, resource pools, templates. Pure values.

``None`` means that it cannot be known now: the region does not answer or was not listed yet, the
credentials may not list it, or a template is being built. Validation refuses only what is known not
to exist; what cannot be known is reported by conditions later.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from moxwell.api.field_errors import FieldError, hint, listing, unknown_name
from moxwell.errors import Invalid
from moxwell.scheduling.inventory_model import Template
from moxwell.scheduling.templates import (
    TemplateMissing,
    TemplateQuery,
    choose_templates,
    version,
    versions_of,
)

Names = Collection[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRegion:
    """What is known of one region."""

    name: str
    zones: frozenset[str] = frozenset()  # of the configuration
    hosts: frozenset[str] | None = None
    storages: frozenset[str] | None = None  # that hold disk images
    bridges: frozenset[str] | None = None  # and VNets
    pools: frozenset[str] | None = None
    templates: tuple[Template, ...] | None = None


@dataclass(frozen=True, slots=True)
class KnownInfrastructure:
    """The regions by name; without ``complete`` others may exist."""

    regions: Mapping[str, KnownRegion] = field(default_factory=dict)
    complete: bool = False

    @property
    def names(self) -> Names:
        """The names of all regions; None if others may exist."""
        return tuple(self.regions) if self.complete else None

    def of(self, names: Iterable[str]) -> "tuple[KnownRegion, ...] | None":
        """The named regions; None if one of them is not known."""
        found = [self.regions.get(name) for name in names]
        return tuple(r for r in found if r is not None) if None not in found else None

    def region_error(self, path: str, name: str) -> FieldError | None:
        """The error of a region that does not exist."""
        return unknown_name(path, "region", name, self.names)


Regions = tuple[KnownRegion, ...] | None  # None: not known which


def union(regions: Regions, names: Callable[[KnownRegion], Names]) -> Names:
    """The names in all regions together; None if those of one region cannot be known."""
    found = [names(region) for region in regions or ()]
    if regions is None or None in found:
        return None
    return sorted({name for part in found for name in part or ()})


def storage_error(path: str, name: str, regions: Regions) -> FieldError | None:
    """The error of a storage that no host of the regions has."""
    return unknown_name(path, "storage for disk images", name, union(regions, lambda r: r.storages))


def bridge_error(path: str, name: str, regions: Regions) -> FieldError | None:
    """The error of a bridge or VNet that no host of the regions has."""
    return unknown_name(path, "bridge or VNet", name, union(regions, lambda r: r.bridges))


def pool_error(path: str, name: str, regions: Regions) -> FieldError | None:
    """The error of a resource pool that no region has."""
    return unknown_name(path, "resource pool", name, union(regions, lambda r: r.pools))


def host_error(path: str, name: str, regions: Regions) -> FieldError | None:
    """The error of a host that no region has."""
    return unknown_name(path, "host", name, union(regions, lambda r: r.hosts))


def zone_error(path: str, name: str, regions: Regions) -> FieldError | None:
    """The error of a name that is neither a configured zone nor a host."""
    if regions and any(name in region.zones for region in regions):
        return None
    hosts = union(regions, lambda r: r.hosts)
    zones = {zone for region in regions or () for zone in region.zones}
    return unknown_name(path, "zone or host", name, None if hosts is None else {*hosts, *zones})


def template_error(path: str, query: TemplateQuery, regions: Regions) -> FieldError | None:
    """The error of a template that no region has; None if one has it or it cannot be known."""
    templates = [t for region in regions or () for t in region.templates or ()]
    try:
        choose_templates(query, templates)
    except TemplateMissing:
        if regions is None or any(region.templates is None for region in regions):
            return None
        return FieldError(path, _missing_template(query, regions, templates))
    except Invalid as error:
        return FieldError(path, str(error))
    return None


def _nearest_version(wanted: str, have: Iterable[tuple[int, ...]]) -> str:
    """A hint with the version whose numbers are nearest."""
    parts = version(wanted)
    if parts is None:
        return ""
    near = min(have, key=lambda v: [abs(a - b) for a, b in zip(v, parts, strict=False)], default=())
    return f" (did you mean v{'.'.join(map(str, near))}?)" if near else ""


def _missing_template(
    query: TemplateQuery, regions: Iterable[KnownRegion], templates: list[Template]
) -> str:
    where = " or ".join(sorted(region.name for region in regions)) or "no region"
    if not templates:
        return f"there are no templates in {where}: make one with `moxwell template build`"
    if query.kubernetes:
        have = sorted({v for t in templates for v in versions_of(t)})
        versions = [f"v{'.'.join(map(str, v))}" for v in have]
        return (
            f"no template in {where} has Kubernetes {query.kubernetes}"
            f"{_nearest_version(query.kubernetes, have)}; "
            f"templates exist for {', '.join(versions) or 'no version'}"
        )
    names = {t.name for t in templates if t.name}
    near = hint(query.name, names) if query.name else ""
    return f"no template with {query} in {where}{near}; known: {listing(names)}"
