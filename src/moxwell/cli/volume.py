"""
``moxwell volume``: what volumes there are, and moving one to another host.

Two ways in. Beside a running instance nothing need be said: its regions and the tenants' own
kubeconfigs are known. Elsewhere ``--config`` names the regions and ``--kubeconfig`` the cluster.
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
    typer.Option("--config", help="Regions (YAML), where no instance of Moxwell runs."),
]
Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", help="With --config; default: the usual places.")
]
Cluster = Annotated[
    str, typer.Option("--cluster", help="Tenant cluster, as name or namespace/name.")
]
DriverName = Annotated[str, typer.Option("--driver-name", help="Whose volumes.")]
Instance = Annotated[
    str, typer.Option("--name", "-n", envvar="MOXWELL_NAME", help="Which instance of Moxwell.")
]
Format = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]
NAME, INSTANCE = "csi.moxwell.dev", "lab"


@asynccontextmanager
async def connected(file: Path | None) -> "AsyncIterator[Kube]":
    """A client by a kubeconfig, the pod's account, or the usual places."""
    from moxwell.clock import SystemClock
    from moxwell.kube import kubeconfig
    from moxwell.kube.client import Kube
    from moxwell.kube.transport import KubeTransport

    clock = SystemClock()
    if file is not None:
        access = kubeconfig.load([file]).access(clock, os.environ)
    else:
        access = kubeconfig.find(clock, os.environ)
    async with KubeTransport(access) as transport:
        yield Kube(transport)


@dataclass(frozen=True)
class Place:
    """Where volumes are looked for: regions, and clusters by name."""

    regions: "tuple[RegionConfig, ...]"
    clusters: "dict[str, Kube]"
    text: str = ""  # of the configuration file, for its features


@asynccontextmanager
async def _place(
    config: Path | None, kubeconfig: Path | None, cluster: str, instance: str
) -> AsyncIterator[Place]:
    from moxwell.pve.config import load

    async with AsyncExitStack() as stack:
        if config is not None:
            regions = load(config)
            kube = await stack.enter_async_context(connected(kubeconfig))
            yield Place(regions, {"": kube}, _text(config))
            return
        if kubeconfig is not None:
            raise typer.BadParameter("--kubeconfig needs --config, which names the regions")
        yield await _instance(stack, cluster, instance)


def _text(file: Path) -> str:
    return file.read_text()


async def _instance(stack: AsyncExitStack, cluster: str, instance: str) -> Place:
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

        known = ", ".join(name for _, name in keys) or "none"
        raise Missing(f"there is no cluster {cluster!r}; there are: {known}")
    clients = {}
    for namespace, name in chosen:
        client = await _tenant(stack, kube, namespace, name)
        if client is not None:
            clients[name] = client
    return Place(regions, clients)


async def _tenant(stack: AsyncExitStack, kube: "Kube", namespace: str, name: str) -> "Kube | None":
    from moxwell.cli.cluster import SECRETS
    from moxwell.clock import SystemClock
    from moxwell.kube import kubeconfig
    from moxwell.kube.client import Kube
    from moxwell.kube.transport import KubeTransport

    secret = await kube.find(SECRETS, f"{name}-kubeconfig", namespace)
    if secret is None:
        return None  # its control plane is starting, so it has no volumes
    text = base64.b64decode(secret["data"]["value"])
    access = kubeconfig.parse(text).access(SystemClock(), os.environ)
    return Kube(await stack.enter_async_context(KubeTransport(access)))


@asynccontextmanager
async def _driver(place: Place, name: str, kube: "Kube | None") -> "AsyncIterator[Driver]":
    import asyncio

    from moxwell.clock import SystemClock
    from moxwell.csi import driver as drivers
    from moxwell.csi.journal import ConfigMapJournal
    from moxwell.csi.main import settings_of
    from moxwell.pve.regions import Regions

    clock = SystemClock()
    regions = Regions(place.regions, clock)
    settings = settings_of(place.text, name)
    journal = ConfigMapJournal(kube, "kube-system", name) if kube is not None else None
    made = drivers.assemble(regions, clock, settings=settings, kube=kube, journal=journal)
    runner = asyncio.create_task(regions.run())
    try:
        yield made
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
    """Every disk of the driver, who has it, and which claim it belongs to."""
    import asyncio

    async def run() -> list[dict[str, Any]]:
        async with _place(config, kubeconfig, cluster, name) as place:
            first = next(iter(place.clusters.values()), None)
            async with _driver(place, driver, first) as made:
                return await _rows(made, place, driver, only=bool(cluster))

    _quiet()
    rows = asyncio.run(run())
    show(rows, ("volume", "size", "node", "cluster", "claim", "state"), output)


async def _rows(driver: "Driver", place: Place, name: str, *, only: bool) -> list[dict[str, Any]]:
    """``only``: leave out what the chosen cluster does not know."""
    from moxwell.csi import listing

    known: dict[str, tuple[str, dict[str, Any]]] = {}
    for cluster, kube in place.clusters.items():
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
        return "attached, unknown to Kubernetes" if node else "unknown to Kubernetes"
    return "attached" if node else str((pv.get("status") or {}).get("phase") or "free").lower()


async def _volumes(kube: "Kube", driver: str) -> dict[str, dict[str, Any]]:
    """PersistentVolumes of the driver, by handle."""
    from moxwell.csi.pvc import VOLUMES

    rows = ((pv, pv["spec"].get("csi") or {}) for pv in (await kube.list(VOLUMES)).items)
    return {c["volumeHandle"]: pv for pv, c in rows if c.get("driver") == driver}


@app.command()
def migrate(
    claim: Annotated[str, typer.Argument(help="The PersistentVolumeClaim.")],
    host: Annotated[str, typer.Argument(help="The Proxmox host to move its disk to.")],
    namespace: Annotated[str, typer.Option("--namespace", help="Of the claim.")] = "default",
    cluster: Cluster = "",
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    driver: DriverName = NAME,
    name: Instance = INSTANCE,
    wait: Annotated[
        int, typer.Option("--wait", min=0, help="Seconds to wait until it is detached.")
    ] = 60,
) -> None:
    """Move a local volume to another host; run it again if it was interrupted."""
    import asyncio

    from moxwell.csi.migrate import Migration

    async def run() -> str:
        async with _place(config, kubeconfig, cluster, name) as place:
            kube = _single(place)
            await _wait_detached(kube, namespace, claim, wait)
            async with _driver(place, driver, kube) as made:
                return await Migration(made, kube, typer.echo).run(namespace, claim, host)

    _quiet()
    typer.echo(f"{namespace}/{claim} is now {asyncio.run(run())}")


@app.command()
def delete(
    volume: Annotated[str, typer.Argument(help="The disk, as `volume list` shows it.")],
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    driver: DriverName = NAME,
    name: Instance = INSTANCE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Destroy a disk that no cluster knows any more, such as one whose cluster was deleted."""
    import asyncio

    async def run() -> None:
        async with _place(config, kubeconfig, "", name) as place:
            await _refuse_known(place, driver, volume)
            first = next(iter(place.clusters.values()), None)
            async with _driver(place, driver, first) as made:
                await _destroy(made, volume)

    _quiet()
    if not yes:
        typer.confirm(f"Destroy {volume} and all data on it?", abort=True)
    asyncio.run(run())
    typer.echo(f"{volume} is gone")


async def _refuse_known(place: Place, driver: str, volume: str) -> None:
    from moxwell.csi.errors import FailedPrecondition

    for cluster, kube in place.clusters.items():
        pv = (await _volumes(kube, driver)).get(volume)
        if pv is not None:
            ref = pv["spec"].get("claimRef") or {}
            claim = f"claim {ref.get('namespace')}/{ref.get('name')}" if ref else "no claim"
            raise FailedPrecondition(
                f"cluster {cluster or 'there'} knows it as {pv['metadata']['name']} ({claim}): "
                "delete it there"
            )


async def _destroy(driver: "Driver", volume: str) -> None:
    from moxwell.csi import create, listing
    from moxwell.errors import Missing

    if volume not in {str(disk.id) for disk, _ in await listing.list_volumes(driver)}:
        raise Missing(f"there is no volume {volume!r}: `moxwell volume list` shows them")
    await create.delete(driver, volume)


async def _wait_detached(kube: "Kube", namespace: str, name: str, seconds: int) -> None:
    """Until Kubernetes has taken the volume off its last node, or the time is up."""
    from moxwell.clock import SystemClock
    from moxwell.csi.pvc import ATTACHMENTS, CLAIMS

    clock, said = SystemClock(), ""
    claim = await kube.get(CLAIMS, name, namespace)
    end = clock.monotonic() + seconds
    while clock.monotonic() < end:
        rows = (await kube.list(ATTACHMENTS)).items
        own = [r for r in rows if _volume_of(r) == claim["spec"].get("volumeName")]
        if not own:
            return
        text = f"waiting until {own[0]['spec']['nodeName']} has let go of it"
        if text != said:
            typer.echo(text)
        said = text
        await clock.sleep(1)


def _volume_of(attachment: dict[str, Any]) -> str | None:
    found: str | None = attachment["spec"]["source"].get("persistentVolumeName")
    return found


def _quiet() -> None:
    """A person reads this; the log is for programs that run on."""
    from moxwell.runtime import log

    log.configure(form="console", level="warning")


def _single(place: Place) -> "Kube":
    if len(place.clusters) != 1:
        known = ", ".join(sorted(place.clusters)) or "none is ready"
        raise typer.BadParameter(f"say which cluster with --cluster: {known}")
    return next(iter(place.clusters.values()))
