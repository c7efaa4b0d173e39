"""``verify`` asked of a daemon: it has the regions and the ways into tenants already."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from moxwell import verify as checks
from moxwell.clock import Clock
from moxwell.kube.client import Kube
from moxwell.kube.transport import HttpTransport
from moxwell.pve.regions import Regions
from moxwell.verify.collector import Gatherer


def verifying(
    kube: Kube, regions: Regions, clock: Clock
) -> Callable[[Mapping[str, Any]], Awaitable[Any]]:
    """The action of that name."""

    async def action(query: Mapping[str, Any]) -> Any:
        gatherer = Gatherer(kube, regions, clock, HttpTransport)
        try:
            return await checks.report(gatherer.look, clock)
        finally:
            await gatherer.close()

    return action
