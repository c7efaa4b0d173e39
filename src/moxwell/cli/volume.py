"""
``moxwell volume``: lists, migrates and deletes volumes of the CSI driver.

With a running instance of Moxwell its regions and the kubeconfigs of its tenant clusters are used.
Otherwise ``--config`` names the regions and ``--kubeconfig`` the cluster.
"""

import base64
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moxwell.cli.output import Output, show

if TYPE_CHECKING:
    from moxwell.csi.driver import Driver
    from moxwell.kube.client import Kube
    from moxwell.pve.config import RegionConfig

app = typer.Typer(no_args_is_help=True)
Config = Annotated[
    Path | None,
    typer.Option("--config", help="File with the regions (YAML), if no instance is running."),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", help="Kubeconfig, with --config; default: as kubectl."),
]
Cluster = Annotated[str, typer.Option("--cluster", help="Tenant cluster: name or namespace/name.")]
DriverName = Annotated[str, typer.Option("--driver-name", help="Name of the CSI driver.")]
Instance = Annotated[
    str, typer.Option("--name", envvar="MOXWELL_NAME", help="Name of the instance.")
]
Format = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
NAME, INSTANCE = "csi.moxwell.dev", "lab"


@dataclass(frozen=True)
class VolumeScope:
    """The regions and, by name, the clusters whose volumes a command handles."""

    regions: "tuple[RegionConfig, ...]"
    clusters: "dict[str, Kube]"
    text: str = ""  # of the configuration file, for its features


@asynccontextmanager
async def _open_scope(
    config: Path | None, kubeconfig: Path | None, cluster: str, instance: str
) -> AsyncIterator[VolumeScope]:
    from moxwell.cli import kube_connection
    from moxwell.pve.config import load

    async with AsyncExitStack() as stack:
        if config is not None:
            regions = load(config)
            kube = await stack.enter_async_context(kube_connection.connected(kubeconfig))
            yield VolumeScope(regions, {"": kube}, _text(config))
            return
        if kubeconfig is not None:
            raise typer.BadParameter("--kubeconfig needs --config, which names the regions")
        yield await _instance_scope(stack, cluster, instance)


def _text(file: Path) -> str:
    return file.read_text()


async def _instance_scope(stack: AsyncExitStack, cluster: str, instance: str) -> VolumeScope:
    from moxwell.api import field_errors
    from moxwell.api.cozystack import Kubernetes
    from moxwell.app.region_access import region_configs
    from moxwell.cli import connect

    regions = region_configs(connect.state(instance), connect.info(instance))
    kube = await stack.enter_async_context(connect.kube(instance))
    found = (await kube.list(Kubernetes)).items
    keys = [(k.metadata.namespace, k.metadata.name) for k in found]
    chosen = [k for k in keys if not cluster or cluster in (k[1], "/".join(k))]
    if cluster and not chosen:
        from moxwell.errors import Missing

        near = field_errors.hint(cluster, {name for _, name in keys})
        known = field_errors.listing("/".join(key) for key in keys)
        raise Missing(f"cluster {cluster!r} does not exist{near}; existing clusters: {known}")
    clients = {}
    for namespace, name in chosen:
        client = await _tenant(stack, kube, namespace, name)
        if client is not None:
            clients[name] = client
    return VolumeScope(regions, clients)


async def _tenant(stack: AsyncExitStack, kube: "Kube", namespace: str, name: str) -> "Kube | None":
    from moxwell.cli.cluster import SECRETS
    from moxwell.clock import SystemClock
    from moxwell.kube import kubeconfig
    from moxwell.kube.client import Kube
    from moxwell.kube.transport import KubeTransport

    secret = await kube.find(SECRETS, f"{name}-kubeconfig", namespace)
    if secret is None:
        return None  # the control plane is starting and has no volumes yet
    text = base64.b64decode(secret["data"]["value"])
    access = kubeconfig.parse(text).access(SystemClock(), os.environ)
    return Kube(await stack.enter_async_context(KubeTransport(access)))


@asynccontextmanager
async def _driver(
    scope: VolumeScope, name: str, kube: "Kube | None", *, every_tenant: bool = False
) -> "AsyncIterator[Driver]":
    import asyncio
    from dataclasses import replace

    from moxwell.clock import SystemClock
    from moxwell.csi import driver as drivers
    from moxwell.csi.journal import ConfigMapJournal
    from moxwell.csi.main import settings_of
    from moxwell.pve.regions import Regions

    clock = SystemClock()
    regions = Regions(scope.regions, clock)
    settings = replace(settings_of(scope.text, name), every_tenant=every_tenant)
    journal = ConfigMapJournal(kube, "kube-system", name) if kube is not None else None
    csi_driver = drivers.assemble(regions, clock, settings=settings, kube=kube, journal=journal)
    runner = asyncio.create_task(regions.run())
    try:
        yield csi_driver
    finally:
        runner.cancel()
        await asyncio.wait([runner])


@app.command("list")
def list_(
    cluster: Cluster = "",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    driver: DriverName = NAME,
    name: Instance = INSTANCE,
    output: Format = Output.TABLE,
) -> None:
    """List the volumes of the CSI driver with their nodes and claims."""
    import asyncio

    async def run() -> list[dict[str, Any]]:
        async with _open_scope(config, kubeconfig, cluster, name) as scope:
            any_cluster = next(iter(scope.clusters.values()), None)
            async with _driver(scope, driver, any_cluster, every_tenant=True) as csi_driver:
                return await _rows(csi_driver, scope, driver, only=bool(cluster))

    _quiet()
    rows = asyncio.run(run())
    show(rows, ("volume", "size", "node", "cluster", "claim", "state"), output)


async def _rows(
    driver: "Driver", scope: VolumeScope, name: str, *, only: bool
) -> list[dict[str, Any]]:
    """The table rows; ``only`` skips volumes without a PersistentVolume in the chosen cluster."""
    from moxwell.csi import listing

    known: dict[str, tuple[str, dict[str, Any]]] = {}
    for cluster, kube in scope.clusters.items():
        known |= {handle: (cluster, pv) for handle, pv in (await _volumes(kube, name)).items()}
    rows = []
    for disk, node in await listing.list_volumes(driver):
        found = known.get(str(disk.id))
        cluster, pv = found or ("", None)
        if only and pv is None:
            continue
        ref = ((pv or {}).get("spec") or {}).get("claimRef") or {}
        rows.append(
            {
                "volume": str(disk.id),
                "size": f"{disk.size / (1 << 30):.4g} GiB",
                "node": node,
                "cluster": cluster,
                "claim": f"{ref.get('namespace')}/{ref.get('name')}" if ref else "",
                "state": _state(node, pv),
            }
        )
    return rows


def _state(node: str, pv: dict[str, Any] | None) -> str:
    if pv is None:
        return "attached, no PersistentVolume" if node else "no PersistentVolume"
    return "attached" if node else str((pv.get("status") or {}).get("phase") or "free").lower()


async def _volumes(kube: "Kube", driver: str) -> dict[str, dict[str, Any]]:
    """The PersistentVolumes of the driver by volume handle."""
    from moxwell.csi.pvc import VOLUMES

    rows = ((pv, pv["spec"].get("csi") or {}) for pv in (await kube.list(VOLUMES)).items)
    return {c["volumeHandle"]: pv for pv, c in rows if c.get("driver") == driver}


@app.command()
def migrate(
    claim: Annotated[str, typer.Argument(help="Name of the PersistentVolumeClaim.")],
    host: Annotated[str, typer.Argument(help="Proxmox host to migrate the disk to.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the claim.")] = (
        "default"
    ),
    cluster: Cluster = "",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    driver: DriverName = NAME,
    name: Instance = INSTANCE,
    wait: Annotated[
        int, typer.Option("--wait", min=0, help="Seconds to wait until the volume is detached.")
    ] = 60,
) -> None:
    """Migrate a local volume to another host; an interrupted migration can be run again."""
    import asyncio

    from moxwell.csi.migrate import Migration
    from moxwell.pve.audit import acting

    async def run() -> str:
        async with _open_scope(config, kubeconfig, cluster, name) as scope:
            kube = _only_cluster(scope)
            await _wait_detached(kube, namespace, claim, wait)
            async with _driver(scope, driver, kube) as csi_driver:
                with acting("cli volume migrate", f"{namespace}/{claim}"):
                    return await Migration(csi_driver, kube, typer.echo).run(namespace, claim, host)

    _quiet()
    typer.echo(f"{namespace}/{claim} is now {asyncio.run(run())}")


@app.command()
def delete(
    volume: Annotated[str, typer.Argument(help="Volume id, as `volume list` shows it.")],
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    driver: DriverName = NAME,
    name: Instance = INSTANCE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete a volume without PersistentVolume, for example one of a deleted cluster."""
    import asyncio

    from moxwell.csi import create
    from moxwell.pve.audit import acting

    async def run() -> None:
        async with _open_scope(config, kubeconfig, "", name) as scope:
            await _refuse_if_used(scope, driver, volume)
            any_cluster = next(iter(scope.clusters.values()), None)
            async with _driver(scope, driver, any_cluster, every_tenant=True) as csi_driver:
                await _refuse_unknown(csi_driver, volume)
                if not yes:
                    typer.confirm(f"Delete {volume} and all its data?", abort=True)
                with acting("cli volume delete", volume):
                    await create.delete(csi_driver, volume)

    _quiet()
    asyncio.run(run())
    typer.echo(f"{volume} deleted")


async def _refuse_if_used(scope: VolumeScope, driver: str, volume: str) -> None:
    from moxwell.csi.errors import FailedPrecondition

    for cluster, kube in scope.clusters.items():
        pv = (await _volumes(kube, driver)).get(volume)
        if pv is not None:
            ref = pv["spec"].get("claimRef") or {}
            claim = f"claim {ref.get('namespace')}/{ref.get('name')}" if ref else "no claim"
            raise FailedPrecondition(
                f"PersistentVolume {pv['metadata']['name']} ({claim}) of cluster "
                f"{cluster or 'in --kubeconfig'} uses {volume}: delete it there"
            )


async def _refuse_unknown(driver: "Driver", volume: str) -> None:
    from moxwell.csi import listing
    from moxwell.errors import Missing

    if volume not in {str(disk.id) for disk, _ in await listing.list_volumes(driver)}:
        raise Missing(f"volume {volume!r} does not exist; see `moxwell volume list`")


async def _wait_detached(kube: "Kube", namespace: str, name: str, seconds: int) -> None:
    """Wait until no VolumeAttachment uses the volume, or the time is over."""
    from moxwell.clock import SystemClock
    from moxwell.csi.pvc import ATTACHMENTS, CLAIMS

    clock, printed = SystemClock(), ""
    claim = await kube.get(CLAIMS, name, namespace)
    end = clock.monotonic() + seconds
    while clock.monotonic() < end:
        rows = (await kube.list(ATTACHMENTS)).items
        own = [r for r in rows if _volume_of(r) == claim["spec"].get("volumeName")]
        if not own:
            return
        text = f"waiting until the volume is detached from {own[0]['spec']['nodeName']}"
        if text != printed:
            typer.echo(text)
        printed = text
        await clock.sleep(1)


def _volume_of(attachment: dict[str, Any]) -> str | None:
    found: str | None = attachment["spec"]["source"].get("persistentVolumeName")
    return found


def _quiet() -> None:
    """Log only warnings, for interactive use."""
    from moxwell.runtime import log

    log.configure(form="console", level="warning")


def _only_cluster(scope: VolumeScope) -> "Kube":
    if len(scope.clusters) != 1:
        known = ", ".join(sorted(scope.clusters)) or "none is ready"
        raise typer.BadParameter(f"choose a cluster with --cluster: {known}")
    return next(iter(scope.clusters.values()))
