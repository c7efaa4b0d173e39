"""
Decides the next steps of a template: image file, guest, conversion, clean-up. Pure.

``moxwell template`` performs all moves of a plan at once, the controller one per pass. Each host
has at most one move. A copy of another revision is destroyed when the new copies are complete and
no linked clone uses it.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from moxwell.controllers.infra.template_build import hardware
from moxwell.controllers.infra.template_build.bake import plan_bake
from moxwell.controllers.infra.template_build.design import TemplateDesign, is_sealed
from moxwell.controllers.infra.template_build.observed import ObservedBuild, TemplateCopy
from moxwell.controllers.infra.template_build.targets import CopyTarget, copy_targets
from moxwell.errors import Denied
from moxwell.pve.steps import (
    Configure,
    CreateGuest,
    DeleteVolume,
    Destroy,
    DownloadImage,
    GuestRef,
    MakeTemplate,
    SetPool,
    Step,
    Stop,
    StorageOnHost,
    UploadImage,
)

_NUMBERED = re.compile(r"(?:net|hostpci|ipconfig)\d+")


class HiddenGuest(Denied):
    """A guest that the token may not read has the VMID of a template."""

    reason = "HiddenGuest"


@dataclass(frozen=True, slots=True)
class BuildMove:
    """One step on one host, and what it does in words."""

    host: str
    step: Step
    text: str


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """What to do next; ``complete`` are the finished copies of the current revision."""

    moves: tuple[BuildMove, ...] = ()
    waiting: tuple[str, ...] = ()
    complete: tuple[TemplateCopy, ...] = ()
    in_use: tuple[TemplateCopy, ...] = field(default=())  # old copies with linked clones

    @property
    def done(self) -> bool:
        return not self.moves and not self.waiting


def plan_build(design: TemplateDesign, seen: ObservedBuild) -> BuildPlan:
    """The next moves towards one complete copy per target; raises if the design cannot be made."""
    design.check()
    moves: dict[str, BuildMove] = {}
    waiting: list[str] = []
    complete: list[TemplateCopy] = []
    images: set[str] = set()  # image places for which a move exists
    for target in copy_targets(design, seen):
        result = _copy(design, seen, target, images)
        if isinstance(result, TemplateCopy):
            complete.append(result)
        elif isinstance(result, BuildMove):
            moves[target.host] = result
        else:
            waiting.append(result)
    if moves or waiting:
        return BuildPlan(tuple(moves.values()), tuple(waiting), tuple(complete))
    return _clean_up(design, seen, tuple(complete))


def plan_discard(design: TemplateDesign, seen: ObservedBuild) -> BuildPlan:
    """The moves that remove what a failed build has made, but no template."""
    return _clean_up(design, seen, tuple(c for c in seen.copies if c.config.template))


def plan_removal(design: TemplateDesign, seen: ObservedBuild) -> BuildPlan:
    """The moves that remove every copy and image file of the owner."""
    return _clean_up(design, seen, ())


def _copy(
    design: TemplateDesign, seen: ObservedBuild, target: CopyTarget, images: set[str]
) -> BuildMove | TemplateCopy | str:
    """The next move of a copy, the copy if it is complete, or what is waited for."""
    if target.host in seen.busy:
        return f"{target.host}: a task runs"
    current = _current(design, seen, target)
    if current is not None:
        return _finish(design, seen, current)
    state = seen.vmids.get(target.host)
    if state is None:
        return f"{target.host}: no VMID from {design.vmids.start} to {design.vmids.end} is free"
    if state.creating:
        advice = "; if nobody creates it, unlock and destroy it (qm unlock)" if state.stale else ""
        return f"{target.host}: guest {state.vmid} is being created{advice}"
    if state.hidden:
        raise HiddenGuest(
            f"{target.host}: the token may not read guest {state.vmid}, which may be this template:"
            " grant VM.Audit on /vms, or give the template another name"
        )
    volid = design.image.volume or _image_volid(design, seen, target)
    if volid:
        return _create(design, seen, target, state.vmid, volid)
    if target.image_place in images:
        return f"{target.host}: another host fetches the image"
    images.add(target.image_place)
    return _fetch(design, seen, target)


def _current(
    design: TemplateDesign, seen: ObservedBuild, target: CopyTarget
) -> TemplateCopy | None:
    """The best copy of the current revision at a target."""
    return min(_copies_at(design, seen, target), key=_rank, default=None)


def _rank(copy: TemplateCopy) -> tuple[bool, int]:
    return (not copy.config.template, copy.vmid)


def _copies_at(
    design: TemplateDesign, seen: ObservedBuild, target: CopyTarget
) -> Iterator[TemplateCopy]:
    for copy in seen.copies:
        same = target.disks.shared or copy.host == target.host
        if copy.revision == design.revision and same and _on_storage(copy, target.disks.name):
            yield copy


def _on_storage(copy: TemplateCopy, storage: str) -> bool:
    return copy.config.get(hardware.DISK).partition(":")[0] == storage


def _finish(
    design: TemplateDesign, seen: ObservedBuild, copy: TemplateCopy
) -> BuildMove | TemplateCopy | str:
    guest = _guest(design, seen, copy)
    if copy.config.lock:
        return f"{copy.host}: guest {copy.vmid} is locked ({copy.config.lock})"
    if design.baking is not None and not copy.config.template:
        step, text = plan_bake(design, design.baking, seen, copy, guest)
        if step is not None or text:
            return BuildMove(copy.host, step, text) if step is not None else text
    update = _update(design, guest, copy)
    if update is not None:
        return BuildMove(copy.host, update, f"updating template {copy.vmid}")
    if not copy.config.template:
        return BuildMove(copy.host, MakeTemplate(guest), f"converting guest {copy.vmid}")
    if design.pool and copy.pool not in (None, design.pool):
        text = f"moving template {copy.vmid} to pool {design.pool}"
        return BuildMove(copy.host, SetPool(guest, pool=design.pool), text)
    return copy


def _update(design: TemplateDesign, guest: GuestRef, copy: TemplateCopy) -> Configure | None:
    """The change of what may change in place; None if there is none."""
    wanted = hardware.in_place(design.hardware)
    extra = tuple(k for k in sorted(copy.config) if _NUMBERED.fullmatch(k) and k not in wanted)
    changes = {
        **wanted,
        "name": design.name,
        "tags": design.all_tags,
        "description": design.mark.describe(
            design.text(copy.vmid, sealed=is_sealed(copy.config.description))
        ),
    }
    step = Configure(guest, changes=changes, delete=extra)
    return step if step.is_needed(copy.config) else None


def _image_volid(design: TemplateDesign, seen: ObservedBuild, target: CopyTarget) -> str:
    """The image file that the target's host can read; empty if there is none yet."""
    assert target.image is not None
    wanted = f"{target.image.name}:import/{design.image_file}"
    return next((f.volid for f in seen.images if (f.host, f.volid) == (target.host, wanted)), "")


def _fetch(design: TemplateDesign, seen: ObservedBuild, target: CopyTarget) -> BuildMove:
    assert target.image is not None
    where = StorageOnHost(seen.region, target.host, target.image.name)
    image, name = design.image, design.image_file
    if image.file is not None:
        upload = UploadImage(
            storage=where,
            mark=design.mark,
            filename=name,
            path=str(image.file.path),
            size_bytes=image.file.size_bytes,
            sha256=image.file.sha256,
        )
        return BuildMove(target.host, upload, f"uploading the image to {target.image.name}")
    download = DownloadImage(
        storage=where,
        mark=design.mark,
        url=image.url,
        filename=name,
        checksum=image.checksum,
        checksum_algorithm=image.checksum_type,
    )
    return BuildMove(target.host, download, f"downloading the image to {target.image.name}")


def _create(
    design: TemplateDesign, seen: ObservedBuild, target: CopyTarget, vmid: int, volid: str
) -> BuildMove:
    config = hardware.create_config(design.hardware, target.disks.name, volid)
    if design.baking is not None:  # only one drive may have the label of cloud-init
        config.pop(hardware.CLOUD_INIT, None)
    if design.pool:
        config["pool"] = design.pool
    step = CreateGuest(
        GuestRef(seen.region, target.host, vmid, design.mark),
        name=design.name,
        config=config,
        description=design.text(vmid),
        tags=tuple(tag for tag in design.all_tags.split(";") if tag),
    )
    return BuildMove(target.host, step, f"importing the image to guest {vmid}")


def _clean_up(
    design: TemplateDesign, seen: ObservedBuild, keep: tuple[TemplateCopy, ...]
) -> BuildPlan:
    """Remove image files and the copies that are not kept, one per host at a time."""
    moves: dict[str, BuildMove] = {}
    in_use: list[TemplateCopy] = []
    waiting = [f"{host}: a task runs" for host in sorted(seen.busy)]
    kept = {copy.vmid for copy in keep}
    for move in (*_image_deletions(design, seen), *_destructions(design, seen, kept, in_use)):
        if move.host not in seen.busy:
            moves.setdefault(move.host, move)
    return BuildPlan(tuple(moves.values()), tuple(waiting), keep, tuple(in_use))


def _image_deletions(design: TemplateDesign, seen: ObservedBuild) -> Iterable[BuildMove]:
    known: set[tuple[str, str]] = set()
    for file in (*seen.images, *seen.isos):
        storage = seen.storages.get((file.host, file.storage))
        place = (file.volid, "" if storage and storage.shared else file.host)
        if file.volid == design.image.volume or place in known:
            continue
        known.add(place)
        where = StorageOnHost(seen.region, file.host, file.storage)
        step = DeleteVolume(storage=where, mark=design.mark, volid=file.volid)
        yield BuildMove(file.host, step, f"deleting the image file {file.volid}")


def _destructions(
    design: TemplateDesign, seen: ObservedBuild, kept: set[int], in_use: list[TemplateCopy]
) -> Iterable[BuildMove]:
    for copy in seen.copies:
        if copy.vmid in kept:
            continue
        if copy.linked_clones:
            in_use.append(copy)
            continue
        if copy.running:
            stop = Stop(_guest(design, seen, copy))
            yield BuildMove(copy.host, stop, f"stopping guest {copy.vmid}")
            continue
        step = Destroy(_guest(design, seen, copy), unreferenced_disks=True)
        yield BuildMove(copy.host, step, f"deleting template {copy.vmid}")


def _guest(design: TemplateDesign, seen: ObservedBuild, copy: TemplateCopy) -> GuestRef:
    return GuestRef(seen.region, copy.host, copy.vmid, design.mark)
