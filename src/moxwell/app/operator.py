"""
Operator mode: the controllers on a genuine Kubernetes, against your own Proxmox.

Cluster API, Kamaji and the IPAM provider are the genuine ones there; none of the stand-ins runs.
Replicas elect a leader, or share the regions among them. A changed configuration file is taken over
without a restart.
"""

import asyncio
import signal
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from moxwell.api.capi.core import Cluster
from moxwell.api.infra import convert as infra
from moxwell.app import admission, controller_selection, defaults
from moxwell.clock import Clock
from moxwell.controllers.cloud import features as cloud
from moxwell.controllers.cloud.metrics import RequestMetrics
from moxwell.controllers.cloud.setup import Pace, add_cloud
from moxwell.controllers.infra.region_registry import RegionBook
from moxwell.controllers.infra.setup import add_infra
from moxwell.controllers.tenancy.cluster.controller import TenantClusters
from moxwell.controllers.tenancy.tenant.controller import Tenants
from moxwell.controllers.tenancy.tenant.firewall import Walls
from moxwell.errors import Invalid
from moxwell.kube import kubeconfig
from moxwell.kube.transport import HttpTransport
from moxwell.pve import config, transport
from moxwell.pve.metrics import CountedTransport
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Ledger
from moxwell.runtime.fence import FencedTransport
from moxwell.runtime.manager import Runtime, assemble
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.settings import Settings
from moxwell.runtime.webhook_ca import Trust, Trusting
from moxwell.runtime.webhooks import Admission, Allow, Deny, Webhooks

log = structlog.get_logger(__name__)
RELOAD_SECONDS = 10.0
CONFIG = Path("/etc/proxmox/config.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How the operator is to run."""

    config: Path  # of nobody's choice (``CONFIG``) it may be missing
    settings: Settings
    controllers: tuple[str, ...] = ("infra", "tenancy")
    kubeconfig: str = ""
    context: str = ""
    pace: Pace = field(default_factory=Pace)
    service: str = "moxwell-webhook-service"
    validating: str = "moxwell-validating-webhook-configuration"


def check(wish: Wish) -> None:
    """Refuse at once what cannot work."""
    regions = load(wish)
    balancer = cloud.parse(_text(wish)).balancer
    named = {region.region for region in regions}
    if balancer.vnet and balancer.region not in named and (balancer.region or len(named) != 1):
        known = ", ".join(sorted(named))
        raise Invalid(f"features.load_balancer.region must be one of {known}: whose vnet is it?")


def load(wish: Wish) -> tuple[config.RegionConfig, ...]:
    """The configured regions. Machines may do without any: clusters bring their own."""
    alone = not controller_selection.choose(
        wish.controllers
    ).loops  # the cloud's loops look at all regions
    if alone and not _text(wish).strip():
        return ()
    return config.load(wish.config, empty=alone)


def _text(wish: Wish) -> str:
    """The file, or nothing where the one that nobody named is not there."""
    if wish.config == CONFIG and not wish.config.exists():
        return ""
    try:
        return wish.config.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"cannot read {wish.config}: {type(error).__name__}") from error


async def run(wish: Wish, clock: Clock, environ: Mapping[str, str]) -> None:
    """Run until told to end."""
    check(wish)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with AsyncExitStack() as stack:
        access = kubeconfig.find(clock, environ, wish.kubeconfig, wish.context)
        handler = await stack.enter_async_context(HttpTransport(access))
        configs = load(wish)
        if not configs:
            log.info("no regions configured", told="clusters bring theirs by credentialsRef")
        runtime = assemble(
            handler, clock, wish.settings, regions=lambda: tuple(regions), clusters=Cluster
        )
        counts = RequestMetrics(runtime.metrics.registry)
        regions = Regions(configs, clock, connect=lambda c: _wire(c, clock, runtime, counts))
        book = RegionBook(regions, configs)
        compose(runtime, clock, regions, book, wish)
        await _until(ended, runtime, regions, reloading(wish, book, clock))


def _wire(
    region: config.RegionConfig, clock: Clock, runtime: Runtime, counts: RequestMetrics
) -> FencedTransport:
    """A wire to a region, counted; nothing is written on it once its lease is lost."""
    wire = CountedTransport(transport.HttpTransport(region, clock), counts.asked, clock)
    return FencedTransport(wire, runtime.fence)


def compose(runtime: Runtime, clock: Clock, regions: Regions, book: RegionBook, wish: Wish) -> None:
    """Add the controllers that were asked for."""
    chosen = controller_selection.choose(wish.controllers)
    if "infra" in chosen.groups:
        add_infra(runtime, clock, regions, Ledger(), book=book)
    if chosen.loops:
        features = cloud.parse(_text(wish))
        add_cloud(runtime, clock, regions, features, loops=chosen.loops, pace=wish.pace)
    if "tenancy" in chosen.groups:
        clusters = TenantClusters(runtime.kube, lambda: defaults.defaults(regions, lab=False))
        runtime.manager.add(Controller(name="tenancy.cluster", reconciler=clusters))
        spaces = Tenants(runtime.kube, Walls(regions))
        runtime.manager.add(Controller(name="tenancy.tenant", reconciler=spaces))
    if wish.settings.webhooks is not None:
        runtime.manager.serve_webhooks(webhooks(), _trust(runtime, clock, wish))


def webhooks() -> Webhooks:
    """Admission of our kinds at ``/validate``, conversion at ``/convert``."""

    def admit(asked: Admission) -> Allow | Deny:
        if not asked.subresource:
            admission.refuse(
                asked.group, asked.kind, asked.object, asked.old, dry_run=asked.dry_run
            )
        return Allow()

    return Webhooks({"/validate": admit}, admission.convert)


def _trust(runtime: Runtime, clock: Clock, wish: Wish) -> Trust:
    space = wish.settings.namespace
    names = (f"{wish.service}.{space}.svc", f"{wish.service}.{space}.svc.cluster.local")
    converted = sorted({k.resource.group_resource for k in infra.KINDS})  # the others have one form
    return Trust(
        runtime.plain,
        clock,
        namespace=space,
        secret="moxwell-webhook-cert",
        names=(*names, "127.0.0.1", "localhost"),
        trusting=Trusting(validating=(wish.validating,), crds=tuple(converted)),
    )


async def reloading(wish: Wish, book: RegionBook, clock: Clock) -> None:
    """Take over a changed file; a broken or blank one is told and the old one stays."""
    known = await asyncio.to_thread(_text, wish)
    while True:
        await clock.sleep(RELOAD_SECONDS)
        try:
            text = await asyncio.to_thread(_text, wish)
            if text == known:
                continue
            known = text
            configs = load(wish) if text.strip() else config.parse(text)
            book.configure(configs)
            log.info("configuration reloaded", regions=len(configs))
        except Invalid as error:
            log.error("configuration not usable", error=str(error))


async def _until(
    ended: asyncio.Event, runtime: Runtime, regions: Regions, reloading: Coroutine[Any, Any, None]
) -> None:
    async with asyncio.TaskGroup() as group:
        work = group.create_task(runtime.manager.run())
        rest = [
            group.create_task(regions.run()),
            group.create_task(reloading),
        ]
        stopping = group.create_task(ended.wait())
        await asyncio.wait([work, stopping], return_when=asyncio.FIRST_COMPLETED)
        runtime.manager.stop()
        await work
        for task in (*rest, stopping):
            task.cancel()
