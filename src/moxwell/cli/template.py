"""
``moxwell template``: makes Proxmox templates from cloud images, lists and deletes them.

The regions are those of ``--config`` or of a running instance. A command that was interrupted is
completed by the same command; a command without anything to do changes nothing.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moxwell.cli.dataclass_options import command
from moxwell.cli.output import Output, show

if TYPE_CHECKING:
    from moxwell.bootstrap.node_software import NodeSoftware
    from moxwell.controllers.infra.template_build.build import TemplateBuilder
    from moxwell.controllers.infra.template_build.design import (
        Baking,
        TemplateDesign,
        TemplateImage,
    )
    from moxwell.pve.ownership import Mark
    from moxwell.pve.regions import Region, Regions

app = typer.Typer(no_args_is_help=True)
NAMESPACE = uuid.UUID("b3c1f7a2-5d0e-5f7b-9c55-6d6f78776c6c")  # of the marks of these templates
INSTANCE = "lab"
TemplateName = Annotated[str, typer.Argument(help="Name of the template.")]
Config = Annotated[
    Path | None,
    typer.Option("--config", help="File with the regions (YAML), if no instance is running."),
]
Instance = Annotated[
    str, typer.Option("--name", envvar="MOXWELL_NAME", help="Name of the instance.")
]
RegionNames = Annotated[
    list[str] | None, typer.Option("--region", help="Region; may be repeated; default: all.")
]

CHECKSUM = "Expected checksum: sha256:…; published: as in the list of the publisher."


@dataclass(frozen=True)
class _Options:
    """The options of ``build`` and ``import``."""

    template: TemplateName
    source: Annotated[str, typer.Argument(help="Image; see the description above.")]
    checksum: Annotated[str, typer.Option(help=CHECKSUM)] = ""
    image_name: Annotated[
        str, typer.Option(help="File name of the image, if its format is not clear.")
    ] = ""
    image_mirror: Annotated[
        str, typer.Option(help="Server with the known images: https://mirror.example.org.")
    ] = ""
    kubernetes: Annotated[str, typer.Option(help="Kubernetes version: v1.34.1.")] = ""
    os: Annotated[str, typer.Option(help="Operating system, as a tag.")] = ""
    install: Annotated[
        bool,
        typer.Option("--install", help="Nodes install containerd, kubelet, kubeadm at first boot."),
    ] = False
    bake: Annotated[
        bool,
        typer.Option("--bake", help="Install them once, in a builder guest, before conversion."),
    ] = False
    builder_address: Annotated[
        str, typer.Option(help="Address of the builder guest, 192.0.2.10/24; default: DHCP.")
    ] = ""
    builder_gateway: Annotated[str, typer.Option(help="Gateway of the builder guest.")] = ""
    builder_nameserver: Annotated[
        list[str] | None, typer.Option(help="Name server of the builder; may be repeated.")
    ] = None
    packages: Annotated[str, typer.Option(help="apt repository of kubelet and kubeadm.")] = ""
    packages_key: Annotated[str, typer.Option(help="URL of the key of that repository.")] = ""
    distribution_mirror: Annotated[
        str, typer.Option(help="Mirror of the distribution: https://mirror.example.org.")
    ] = ""
    registry_mirror: Annotated[
        list[str] | None, typer.Option(help="REGISTRY=URL; may be repeated.")
    ] = None
    image_repository: Annotated[str, typer.Option(help="Repository of the pause image.")] = ""
    proxy: Annotated[str, typer.Option(help="HTTP proxy of the nodes.")] = ""
    storage: Annotated[
        list[str] | None, typer.Option(help="Storage; may be repeated; default: any.")
    ] = None
    host: Annotated[list[str] | None, typer.Option(help="Host; may be repeated.")] = None
    region: RegionNames = None
    bridge: Annotated[str, typer.Option(help="Bridge or VNet of the network device.")] = "vmbr0"
    vlan: Annotated[int, typer.Option(min=0, max=4094, help="VLAN; 0: none.")] = 0
    uefi: Annotated[bool, typer.Option("--uefi", help="Boot with UEFI (OVMF).")] = False
    agent: Annotated[bool, typer.Option(help="Enable the QEMU guest agent.")] = True
    cloud_init_drive: Annotated[bool, typer.Option(help="Add a cloud-init drive.")] = True
    tag: Annotated[list[str] | None, typer.Option(help="Another tag; may be repeated.")] = None
    pool: Annotated[str, typer.Option(help="Resource pool of the template.")] = ""
    config: Config = None
    name: Instance = INSTANCE


def mark_of(template: str) -> "Mark":
    """The owner mark of a template that a command makes, the same for each run."""
    from moxwell.pve.ownership import Mark

    return Mark(str(uuid.uuid5(NAMESPACE, template)))


@app.command()
@command(_Options)
def build(options: _Options) -> None:
    """
    Make a template from an image that the hosts download: a URL, or a known name such as
    ubuntu-24.04, debian-13 or flatcar.
    """
    from moxwell.bootstrap.cloud_images import find_image
    from moxwell.cli.template_source import known_checksum
    from moxwell.controllers.infra.template_build.design import TemplateImage

    found = find_image(options.source, options.image_mirror)
    kind, digits = known_checksum(found.url, options.checksum)
    image = TemplateImage(
        url=found.url, checksum=digits, checksum_type=kind, name=options.image_name
    )
    _run_build(options, _design(options, image, options.os or found.os))


@app.command("import")
@command(_Options)
def import_(options: _Options) -> None:
    """
    Make a template from an image file of this machine (also compressed: gz, xz, bz2, zst), or from
    a volume: STORAGE:import/FILE.
    """
    from moxwell.cli.template_source import opened_source

    with opened_source(options.source, options.checksum, options.image_name) as image:
        _run_build(options, _design(options, image, options.os))


def _design(options: _Options, image: "TemplateImage", os: str) -> "TemplateDesign":
    from moxwell.bootstrap.node_software import description_line
    from moxwell.controllers.infra.template_build import hardware
    from moxwell.controllers.infra.template_build.design import TemplateDesign, checked_tags

    software = _software(options)
    nic = hardware.TemplateNic(bridge=options.bridge, vlan=options.vlan or None)
    devices = hardware.TemplateHardware(
        nics=(nic,),
        uefi=options.uefi,
        agent=hardware.AGENT if options.agent else "0",
        cloud_init_drive=options.cloud_init_drive,
    )
    version = f"k8s-v{options.kubernetes.removeprefix('v')}" if options.kubernetes else ""
    design = TemplateDesign(
        name=options.template,
        mark=mark_of(options.template),
        image=image,
        storages=tuple(options.storage or ()),
        hardware=hardware.config_of(devices),
        tags=checked_tags([version, os, *(options.tag or ())]),
        description=description_line(software) if software and not options.bake else "",
        baking=_baking(options, software) if options.bake and software else None,
        pool=options.pool,
        hosts=tuple(options.host or ()),
    )
    design.check()
    return design


def _baking(options: _Options, software: "NodeSoftware") -> "Baking":
    from moxwell.bootstrap.baking import BuilderNetwork
    from moxwell.controllers.infra.template_build.design import Baking

    servers = tuple(options.builder_nameserver or ())
    network = BuilderNetwork(options.builder_address, options.builder_gateway, servers)
    return Baking(software, network)


def _software(options: _Options) -> "NodeSoftware | None":
    from moxwell.bootstrap.node_software import InvalidNodeSoftware, NodeSoftware

    if not options.install and not options.bake:
        return None
    pairs = [text.partition("=") for text in options.registry_mirror or ()]
    if any(not url for _, _, url in pairs):
        raise InvalidNodeSoftware("--registry-mirror is written as docker.io=https://…")
    software = NodeSoftware(
        kubernetes=options.kubernetes,
        packages=options.packages,
        packages_key=options.packages_key,
        distribution_mirror=options.distribution_mirror,
        image_repository=options.image_repository,
        registry_mirrors={name: url for name, _, url in pairs},
        proxy=options.proxy,
    )
    software.check()
    return software


def _run_build(options: _Options, design: "TemplateDesign") -> None:
    async def one(region: "Region", builder: "TemplateBuilder") -> None:
        plan = await builder.build(design)
        for copy in plan.complete:
            typer.echo(f"{region.name}/{copy.host}: template {copy.vmid} {design.name} is ready")
        for copy in plan.in_use:
            text = f"the earlier template {copy.vmid} is kept: linked clones use it"
            typer.echo(f"{region.name}/{copy.host}: {text}")

    _each_region(options.config, options.name, options.region, one, f"build {design.name}")


@app.command()
def delete(
    template: TemplateName,
    region: RegionNames = None,
    config: Config = None,
    name: Instance = INSTANCE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a template that `moxwell template` made, on all hosts."""
    from moxwell.controllers.infra.template_build.design import TemplateDesign, TemplateImage
    from moxwell.errors import Missing

    design = TemplateDesign(template, mark_of(template), TemplateImage(), ())
    if not yes:
        typer.confirm(f"Delete template {template} on all hosts?", abort=True)
    found: list[Any] = []

    async def one(at: "Region", builder: "TemplateBuilder") -> None:
        await at.inventory.refresh()
        found.extend(at.inventory.find_by_owner(design.mark.key))
        await builder.remove(design)

    _each_region(config, name, region, one, f"delete {template}")
    if not found:
        raise Missing(f"`moxwell template` made no template {template!r}; see `template list`")
    typer.echo(f"template {template} deleted")


@app.command("list")
def list_(
    region: RegionNames = None,
    config: Config = None,
    name: Instance = INSTANCE,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """List the templates of all hosts."""
    rows: list[dict[str, Any]] = []

    async def one(at: "Region", builder: "TemplateBuilder") -> None:
        await at.inventory.refresh()
        rows.extend(_rows(at))

    _each_region(config, name, region, one, "list")
    columns = ("region", "host", "vmid", "name", "kubernetes", "tags", "made by")
    show(rows, columns, output)


def _rows(region: "Region") -> list[dict[str, Any]]:
    from moxwell.controllers.infra.template_build.design import TEMPLATE_TAG
    from moxwell.controllers.infra.templates import template_of
    from moxwell.pve.ownership import user_tags
    from moxwell.scheduling.templates import versions_of

    def made_by(name: str, tags: tuple[str, ...], keys: tuple[str, ...]) -> str:
        if TEMPLATE_TAG not in tags:
            return "others"
        return "moxwell template" if mark_of(name).key in keys else "a ProxmoxTemplate"

    return [
        {
            "region": region.name,
            "host": guest.host,
            "vmid": guest.vmid,
            "name": guest.name,
            "kubernetes": ", ".join(
                "v" + ".".join(map(str, v))
                for v in sorted(versions_of(template_of(region.name, guest)))
            ),
            "tags": ", ".join(user_tags(guest.tags)),
            "made by": made_by(guest.name, guest.tags, guest.owner_keys),
        }
        for guest in sorted(region.inventory.view.templates, key=lambda g: (g.name, g.vmid))
    ]


def _each_region(
    config: Path | None,
    instance: str,
    names: list[str] | None,
    work: "Callable[[Region, TemplateBuilder], Awaitable[None]]",
    actor: str,
) -> None:
    """Do the work in each region, one after the other."""
    from moxwell.clock import SystemClock
    from moxwell.controllers.infra.template_build.build import TemplateBuilder
    from moxwell.pve.audit import acting
    from moxwell.runtime import log

    async def run() -> None:
        async with _opened(config, instance) as regions:
            for name in names or list(regions):
                region = regions[name]
                with acting("cli template", actor):
                    await work(region, TemplateBuilder(region, SystemClock(), typer.echo))

    log.configure(form="console", level="warning")
    asyncio.run(run())


@asynccontextmanager
async def _opened(config: Path | None, instance: str) -> "AsyncIterator[Regions]":
    """The regions, whose tasks are polled while the block runs."""
    from moxwell.app.region_access import region_configs
    from moxwell.cli import connect
    from moxwell.clock import SystemClock
    from moxwell.pve.config import load
    from moxwell.pve.regions import Regions

    if config is not None:
        configs = load(config)
    else:
        configs = region_configs(connect.state(instance), connect.info(instance))
    regions = Regions(configs, SystemClock())
    runner = asyncio.create_task(regions.run())
    try:
        yield regions
    finally:
        runner.cancel()
        await asyncio.wait([runner])
