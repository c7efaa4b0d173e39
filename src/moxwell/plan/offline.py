"""
``moxwell plan`` without a daemon, for operator mode: reads the Kubernetes API and the regions once.

The infrastructure controllers are assembled for their caches and never run. Requests to the API are
reads and dry runs; anything else raises ``Bug`` before it is sent.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate
from moxwell.api.requests import Handler, Request, Response
from moxwell.clock import Clock
from moxwell.controllers.infra.known_regions import KnownRegions
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.controllers.infra.setup import add_infra
from moxwell.controllers.tenancy.cluster.controller import TenantClusterReconciler
from moxwell.controllers.tenancy.cluster.defaults import Defaults
from moxwell.controllers.tenancy.cluster.validator import ClusterValidator, QuotaCaches
from moxwell.controllers.tenancy.tenant.controller import TenantReconciler
from moxwell.errors import Bug, Unreachable
from moxwell.kube.client import Kube
from moxwell.plan.manifest_plan import ManifestPlanner
from moxwell.plan.placement import PlacementPreview
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Reservations
from moxwell.runtime.manager import assemble
from moxwell.runtime.settings import ManagerSettings

SYNC_SECONDS = 60.0


class DryRunHandler:
    """A request handler that refuses every write that is not a dry run."""

    def __init__(self, inner: Handler) -> None:
        self._inner = inner

    async def handle(self, request: Request) -> Response:
        if request.method != "GET" and ("dryRun", "All") not in tuple(request.query):
            raise Bug(f"a plan tried to {request.method} {request.path}")
        return await self._inner.handle(request)


@asynccontextmanager
async def offline_planner(
    handler: Handler, regions: Regions, clock: Clock, defaults: Callable[[], Defaults]
) -> AsyncIterator[ManifestPlanner]:
    """A planner over an API whose controllers run elsewhere."""
    dry = DryRunHandler(handler)
    runtime = assemble(dry, clock, ManagerSettings(elect=False, identity="plan"))
    book = RegionRegistry(regions, [region.config for region in regions.values()])
    infra = add_infra(runtime, clock, regions, Reservations(), registry=book)
    builds = runtime.manager.caches.of(ProxmoxTemplate, optional=True)
    known = KnownRegions(regions, book, clock, builds.list)
    tenancy = QuotaCaches.of(runtime.manager.caches)
    caches = asyncio.create_task(runtime.manager.caches.run())
    try:
        async with asyncio.timeout(SYNC_SECONDS):
            await runtime.manager.caches.wait_synced()
            await known.refresh()
        kube = Kube(dry)
        yield ManifestPlanner(
            kube,
            TenantClusterReconciler(kube, defaults, clock),
            lambda: PlacementPreview(kube, infra.explainer, regions),
            tenants=TenantReconciler(kube, regions),
            validator=ClusterValidator(known.now, defaults, tenancy, clock),
        )
    except TimeoutError as error:
        raise Unreachable(f"the API did not list its objects in {SYNC_SECONDS:.0f} s") from error
    finally:
        caches.cancel()
        await asyncio.wait([caches])
