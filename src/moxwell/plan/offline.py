"""
A plan without a daemon: the controllers are wired as the operator wires them, and never run.

In flow an API and the regions, each listed once; out flows a :class:`Foresight` over caches that
are kept only as long as the question lasts. What goes to the API is read-only or a dry run;
anything else is a bug and refused before it leaves.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from moxwell.api.requests import Handler, Request, Response
from moxwell.app import defaults
from moxwell.clock import Clock
from moxwell.controllers.infra.region_registry import RegionBook
from moxwell.controllers.infra.setup import add_infra
from moxwell.errors import Bug, Unreachable
from moxwell.kube.client import Kube
from moxwell.plan.manifest_plan import Foresight
from moxwell.plan.placement import Landing
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Ledger
from moxwell.runtime.manager import assemble
from moxwell.runtime.settings import Settings

SYNC_SECONDS = 60.0


class Dry:
    """A way to an API on which nothing can be changed."""

    def __init__(self, inner: Handler) -> None:
        self._inner = inner

    async def handle(self, request: Request) -> Response:
        if request.method != "GET" and ("dryRun", "All") not in tuple(request.query):
            raise Bug(f"a plan tried to {request.method} {request.path}")
        return await self._inner.handle(request)


@asynccontextmanager
async def peek(handler: Handler, regions: Regions, clock: Clock) -> AsyncIterator[Foresight]:
    """Foresight over an API that somebody else's controllers look after."""
    dry = Dry(handler)
    runtime = assemble(dry, clock, Settings(elect=False, identity="plan"))
    book = RegionBook(regions, [region.config for region in regions.values()])
    infra = add_infra(runtime, clock, regions, Ledger(), book=book)
    keeping = asyncio.create_task(runtime.manager.caches.run())
    try:
        async with asyncio.timeout(SYNC_SECONDS):
            await runtime.manager.caches.wait_synced()
        kube = Kube(dry)
        landing = Landing(kube, infra.explainer, regions)
        yield Foresight(kube, landing, lambda: defaults.defaults(regions, lab=False))
    except TimeoutError as error:
        raise Unreachable(f"the API did not list its objects in {SYNC_SECONDS:.0f} s") from error
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
