"""
Decides the next step of a builder guest: ISO, start, wait, seal, shut down, detach. Pure.

That a builder is sealed is written to its description while it runs; only a guest with that line is
shut down and converted. A builder that stops without it is started again and continues.
"""

from moxwell.bootstrap.baking import SEALED, builder_files, failure_in
from moxwell.bootstrap.iso import build_iso
from moxwell.controllers.infra.template_build import hardware
from moxwell.controllers.infra.template_build.design import (
    Baking,
    TemplateDesign,
    is_sealed,
)
from moxwell.controllers.infra.template_build.observed import ObservedBuild, TemplateCopy
from moxwell.controllers.infra.template_build.targets import iso_storage
from moxwell.errors import Invalid
from moxwell.pve.steps import (
    AttachIso,
    Configure,
    GuestRef,
    Shutdown,
    Start,
    Step,
    StorageOnHost,
    UploadIso,
)
from moxwell.pve.values import Blob

SLOT = "ide0"  # not that of the cloud-init drive, which the template gets when it is sealed
MAX_SECONDS = 3600
SHUTDOWN_SECONDS = 180


class BakeFailed(Invalid):
    """The node software could not be installed in a builder guest."""

    reason = "BakeFailed"


def iso_file(design: TemplateDesign, vmid: int) -> str:
    """The name of a builder's ISO; it contains the key of the owner."""
    return f"moxwell-bake-{vmid}-{design.mark.key}.iso"


def plan_bake(
    design: TemplateDesign, baking: Baking, seen: ObservedBuild, copy: TemplateCopy, guest: GuestRef
) -> tuple[Step | None, str]:
    """The next step with its text; without a step what is waited for; ("", None) when baked."""
    sealed = is_sealed(copy.config.description)
    if copy.running:
        return _sealing(design, copy, guest) if not sealed else _shutdown(copy, guest)
    if not sealed:
        return _start(design, baking, seen, copy, guest)
    return _detach(design, copy, guest)


def _sealing(
    design: TemplateDesign, copy: TemplateCopy, guest: GuestRef
) -> tuple[Step | None, str]:
    failure = failure_in(copy.result)
    if failure is not None:
        raise BakeFailed(
            f"{copy.host}: guest {copy.vmid} could not install the node software: {failure}: check "
            "the mirrors and the network of the template"
        )
    if copy.result.strip() == SEALED:
        text = design.mark.describe(design.text(copy.vmid, sealed=True))
        return Configure(guest, changes={"description": text}), f"guest {copy.vmid} is sealed"
    if copy.uptime_seconds > MAX_SECONDS:
        raise BakeFailed(
            f"{copy.host}: guest {copy.vmid} did not finish within {MAX_SECONDS // 60} minutes: "
            "look at its console (`qm terminal`); without a network it cannot install anything"
        )
    return None, f"{copy.host}: guest {copy.vmid} installs the node software"


def _shutdown(copy: TemplateCopy, guest: GuestRef) -> tuple[Step | None, str]:
    step = Shutdown(guest, timeout_seconds=SHUTDOWN_SECONDS, force=True)
    return step, f"shutting down guest {copy.vmid}"


def _start(
    design: TemplateDesign, baking: Baking, seen: ObservedBuild, copy: TemplateCopy, guest: GuestRef
) -> tuple[Step | None, str]:
    if baking.network.address and (other := _address_user(seen, copy)):
        return None, f"{copy.host}: guest {other} uses the builder's address"
    storage, name = iso_storage(copy.host, seen), iso_file(design, copy.vmid)
    volid = f"{storage.name}:iso/{name}"
    if copy.config.get(SLOT).partition(",")[0] == volid:
        return Start(guest), f"starting guest {copy.vmid} to install the node software"
    if any((f.host, f.volid) == (copy.host, volid) for f in seen.isos):
        return AttachIso(guest, slot=SLOT, volid=volid), f"attaching {volid}"
    files = builder_files(baking.software, baking.network, copy.config.mac("net0"))
    upload = UploadIso(
        storage=StorageOnHost(seen.region, copy.host, storage.name),
        mark=design.mark,
        filename=name,
        content=Blob(build_iso(files)),
    )
    return upload, f"uploading the bootstrap ISO to {storage.name}"


def _address_user(seen: ObservedBuild, copy: TemplateCopy) -> int | None:
    """Another builder of the same template that runs, or that is started first."""
    others = [c for c in seen.copies if c.revision == copy.revision and c.vmid != copy.vmid]
    waiting = [c for c in others if not c.config.template and not is_sealed(c.config.description)]
    running = [c.vmid for c in others if c.running]
    return next(iter([*running, *(c.vmid for c in waiting if c.vmid < copy.vmid)]), None)


def _detach(design: TemplateDesign, copy: TemplateCopy, guest: GuestRef) -> tuple[Step | None, str]:
    """Replace the builder's drive by the cloud-init drive of the template."""
    wanted = design.hardware.get(hardware.CLOUD_INIT, "")
    storage = copy.config.get(hardware.DISK).partition(":")[0]
    missing = bool(wanted) and hardware.CLOUD_INIT not in copy.config
    drive = {hardware.CLOUD_INIT: wanted.replace(hardware.STORAGE, storage)} if missing else {}
    if SLOT in copy.config or drive:
        delete = (SLOT,) if SLOT in copy.config else ()
        return Configure(guest, changes=drive, delete=delete), f"detaching the ISO of {copy.vmid}"
    return None, ""
