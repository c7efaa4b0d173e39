"""
A small simulated region for tests of templates, and a client with the privileges of templates only.

The simulator survives a kill of the program under test; a new client finds what the old one left.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

from moxwell.bootstrap import baking
from moxwell.bootstrap.iso import read_iso
from moxwell.clock import Clock
from moxwell.controllers.infra.template_build.bake import SLOT
from moxwell.controllers.infra.template_build.build import TemplateBuilder
from moxwell.controllers.infra.template_build.design import TemplateDesign, TemplateImage
from moxwell.controllers.infra.template_build.hardware import TemplateHardware, config_of
from moxwell.lab.proxmox.errors import die
from moxwell.lab.proxmox.guest import GuestAgentNotRunning, GuestOs, GuestVm
from moxwell.lab.proxmox.state import SimAcl, SimRegion
from moxwell.pve import preflight
from moxwell.pve.config import RegionConfig, TokenAuth
from moxwell.pve.ownership import Mark
from moxwell.pve.preflight import Feature, Need
from moxwell.pve.regions import Region
from moxwell.pve.values import SecretValue
from moxwell.testing.small_region import TOKEN, SimStage

INSTALL_SECONDS = 60.0
URL = "https://images.example/noble.img"
MARK = Mark("0a1b2c3d-0000-4000-8000-000000000001")
TEMPLATES: tuple[Feature, ...] = ("templates",)
MAJORS = {8: "8.4.21", 9: "9.2.11"}


def design_of(**changes: Any) -> TemplateDesign:
    """A design with an image by URL on the storage ``local``."""
    fields: dict[str, Any] = {
        "name": "ubuntu",
        "mark": MARK,
        "image": TemplateImage(url=URL),
        "storages": ("local",),
        "hardware": config_of(TemplateHardware()),
        "tags": ("k8s-v1.34.1", "ubuntu-24.04"),
    }
    return TemplateDesign(**{**fields, **changes})


def grant_needs(region: SimRegion, needs: Collection[Need], user: str = "moxwell@pve") -> None:
    """Grant exactly these privileges, path by path, and nothing else."""
    region.access.acl.clear()
    for number, path in enumerate(sorted({need.path for need in needs})):
        held = sorted({need.privilege for need in needs if need.path == path})
        region.access.roles[f"R{number}"] = held
        region.access.acl.append(SimAcl(path, "user", user, f"R{number}"))


class BuilderGuests:
    """
    Guests that boot the bootstrap ISO of a builder and report its result after some time.

    ``failure`` is the end of the log of an installation that fails; ``boots`` are the files of
    each ISO that a guest read.
    """

    def __init__(self, clock: Clock, failure: str = "") -> None:
        self._clock, self.failure = clock, failure
        self._due: dict[tuple[str, int], float] = {}
        self.boots: list[dict[str, bytes]] = []

    async def booted(self, vm: GuestVm) -> None:
        medium = vm.media(SLOT)
        files = read_iso(medium) if medium is not None else {}
        if baking.RESULT.encode() in files.get("user-data", b""):
            self.boots.append(files)
            self._due[vm.region, vm.vmid] = self._clock.monotonic() + INSTALL_SECONDS

    async def stopped(self, region: str, vmid: int) -> None:
        self._due.pop((region, vmid), None)

    def handles_shutdown(self, vm: GuestVm) -> bool:
        return (vm.region, vm.vmid) in self._due

    async def agent(self, vm: GuestVm, command: str, args: dict[str, Any]) -> Any:
        due = self._due.get((vm.region, vm.vmid))
        if due is None:
            raise GuestAgentNotRunning
        if command == "shutdown":
            vm.power_off()
        if command in ("shutdown", "ping"):
            return {}
        if command != "file-read" or self._clock.monotonic() < due:
            raise die(f"Agent error: failed to open file '{args.get('file')}' (mode: 'r')")
        text = f"{baking.FAILED}\n{self.failure}" if self.failure else baking.SEALED
        return {"content": f"{text}\n", "bytes-read": len(text) + 1}


def template_stage(
    major: int,
    needs: Collection[Need] | None = None,
    guests: Callable[[Clock], GuestOs] | None = None,
) -> SimStage:
    """A stage whose client has the privileges of templates, or those given."""
    stage = SimStage(MAJORS[major], guests)
    wanted = preflight.needs(major, TEMPLATES) if needs is None else needs
    grant_needs(stage.region, wanted)
    return stage


@asynccontextmanager
async def template_builder(
    stage: SimStage,
    report: Callable[[str], None] = lambda text: None,
    transport: Any = None,
) -> AsyncIterator[tuple[TemplateBuilder, Region]]:
    """A builder of one program run on the stage."""
    token, secret = TOKEN.split("=")
    auth = TokenAuth(token, SecretValue(secret))
    config = RegionConfig(region="r1", urls=("https://pve1:8006",), auth=auth)
    region = Region(config, transport or stage.transport, stage.clock)
    poller = asyncio.create_task(region.tasks.run())
    try:
        yield TemplateBuilder(region, stage.clock, report), region
    finally:
        poller.cancel()
        await asyncio.wait([poller])


def templates_of(stage: SimStage) -> dict[str, list[int]]:
    """The VMIDs of the templates that were made, by host."""
    found: dict[str, list[int]] = {}
    for vmid, guest in sorted(stage.region.guests.items()):
        if vmid not in (100, 200, 300, 9000):
            found.setdefault(guest.node, []).append(vmid)
    return found


def image_files(stage: SimStage) -> list[str]:
    """The image files on all storages and hosts."""
    return sorted(
        f"{host}:{name}"
        for storage in stage.region.storages.values()
        for host in stage.region.hosts
        for name in storage.volumes_on(host)
        if name.startswith(("import/", "iso/moxwell-"))
    )
