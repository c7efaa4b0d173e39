"""Decides which hosts get a copy of a template, and on which storages. Pure."""

from dataclasses import dataclass

from moxwell.controllers.infra.template_build.design import TemplateDesign
from moxwell.controllers.infra.template_build.observed import ObservedBuild
from moxwell.errors import Missing
from moxwell.pve.model import ObservedStorage

IMPORT, IMAGES, ISO = "import", "images", "iso"


class TemplateStorageMissing(Missing):
    """No storage can hold the image or the disks of a template."""

    reason = "TemplateStorageMissing"


class TemplateHostMissing(Missing):
    """A host of a template does not exist or does not answer."""

    reason = "TemplateHostMissing"


@dataclass(frozen=True, slots=True)
class CopyTarget:
    """A host that makes a copy, with the storage of the disks and that of the image file."""

    host: str
    disks: ObservedStorage
    image: ObservedStorage | None  # None: the source is a volume that exists

    @property
    def place(self) -> str:
        """Equal for hosts that share the disks of one copy."""
        return f"storage {self.disks.name}" if self.disks.shared else f"host {self.host}"

    @property
    def image_place(self) -> str:
        """Equal for hosts that share the image file."""
        if self.image is None:
            return ""
        return f"{self.image.name}@" + ("" if self.image.shared else self.host)


def copy_targets(design: TemplateDesign, seen: ObservedBuild) -> tuple[CopyTarget, ...]:
    """One target per host, or one per shared storage; raises if there is none."""
    hosts = _hosts(design, seen)
    found: dict[str, CopyTarget] = {}
    for host in _preferred(hosts, design, seen):
        target = _target(host, design, seen)
        if target is not None:
            found.setdefault(target.place, target)
    if not found:
        raise TemplateStorageMissing(_why_none(hosts, design, seen))
    return tuple(sorted(found.values(), key=lambda target: target.host))


def iso_storage(host: str, seen: ObservedBuild) -> ObservedStorage:
    """The storage for the bootstrap ISO of a builder; raises if the host has none."""
    found = _storage(host, ISO, (), seen)
    if found is None:
        raise TemplateStorageMissing(
            f"no active storage on {host} accepts ISO images, which a builder guest needs: add the "
            "content type with `pvesm set STORAGE --content …,iso`"
        )
    return found


def _hosts(design: TemplateDesign, seen: ObservedBuild) -> list[str]:
    unknown = [host for host in design.hosts if host not in seen.online]
    if unknown:
        raise TemplateHostMissing(
            f"region {seen.region} has no host {', '.join(unknown)}; "
            f"there are {', '.join(sorted(seen.online))}"
        )
    wanted = design.hosts or tuple(sorted(seen.online))
    online = [host for host in wanted if seen.online[host]]
    if not online:
        raise TemplateHostMissing(f"no host answers in region {seen.region}: start one")
    return online


def _preferred(hosts: list[str], design: TemplateDesign, seen: ObservedBuild) -> list[str]:
    """Hosts that have a copy come first, so that a shared copy is not made again elsewhere."""
    have = {copy.host for copy in seen.copies if copy.revision == design.revision}
    return sorted(hosts, key=lambda host: (host not in have, host))


def _target(host: str, design: TemplateDesign, seen: ObservedBuild) -> CopyTarget | None:
    disks = _storage(host, IMAGES, design.storages, seen)
    if disks is None:
        return None
    if design.image.volume:
        here = any(f.host == host and f.volid == design.image.volume for f in seen.images)
        return CopyTarget(host, disks, None) if here else None
    image = _storage(host, IMPORT, design.storages, seen)
    return CopyTarget(host, disks, image) if image is not None else None


def _storage(
    host: str, content: str, names: tuple[str, ...], seen: ObservedBuild
) -> ObservedStorage | None:
    """The first named storage that accepts the content; without names a shared one, else any."""
    rows = [s for (at, _), s in sorted(seen.storages.items()) if at == host and s.available]
    able = [s for s in rows if content in s.content]
    if names:
        by_name = {s.name: s for s in able}
        return next((by_name[name] for name in names if name in by_name), None)
    return min(able, key=lambda s: (not s.shared, -s.free_bytes, s.name), default=None)


def _why_none(hosts: list[str], design: TemplateDesign, seen: ObservedBuild) -> str:
    """What is missing, and what the user does about it."""
    where = ", ".join(hosts)
    known = {name for host, name in seen.storages if host in hosts}
    unknown = [name for name in design.storages if name not in known]
    if unknown:
        return (
            f"storageIDs: no storage {', '.join(unknown)} on {where}; "
            f"there are {', '.join(sorted(known)) or 'none'}"
        )
    named = f"of {', '.join(design.storages)} " if design.storages else ""
    for content in (IMAGES,) if design.image.volume else (IMAGES, IMPORT):
        if not any(_storage(host, content, design.storages, seen) for host in hosts):
            return (
                f"storageIDs: no active storage {named}on {where} accepts the content type "
                f"{content}: add it with `pvesm set STORAGE --content …,{content}`, or name another"
            )
    if design.image.volume:
        return f"the image {design.image.volume} does not exist on {where}"
    return f"storageIDs: no host of {where} has a storage for images and one for imports"
