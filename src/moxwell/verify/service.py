"""The daemon's action that runs the checks with its own clients."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from moxwell import verify as checks
from moxwell.clock import Clock
from moxwell.kube.client import Kube
from moxwell.kube.transport import KubeTransport
from moxwell.pve.regions import Regions
from moxwell.verify.collector import ObservationCollector


def verify_action(
    kube: Kube, regions: Regions, clock: Clock
) -> Callable[[Mapping[str, Any]], Awaitable[Any]]:
    """The action ``verify``."""

    async def action(query: Mapping[str, Any]) -> Any:
        collector = ObservationCollector(kube, regions, clock, KubeTransport)
        try:
            return await checks.report(collector.observe, clock)
        finally:
            await collector.close()

    return action
