"""
``cloud.service``: assigns, keeps and releases load balancer addresses.

Passes must not run concurrently (``per_shard=1``): each one chooses from the addresses that the
others have left.
"""

from collections.abc import Sequence
from typing import Any

from moxwell.controllers.cloud import loops
from moxwell.controllers.cloud.features import LoadBalancerFeatures
from moxwell.controllers.cloud.service import allocation
from moxwell.controllers.cloud.service.plan import (
    AssignAddresses,
    CloudServiceMove,
    CloudServiceReason,
    KeepAddresses,
    ObservedService,
    ReleaseServiceAddresses,
    StopManaging,
    plan_service,
)
from moxwell.controllers.cloud.service.see import SERVICES, CloudServiceObserver
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.pve.regions import Regions
from moxwell.pve.steps import ReleaseVnetAddress, ReserveVnetAddress
from moxwell.runtime import finalizer
from moxwell.runtime.move import Done, Wait
from moxwell.runtime.reconciler import Note, Reconciler

NAME = loops.SERVICE
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
Json = dict[str, Any]


class CloudServiceReconciler(Reconciler[Json, ObservedService, CloudServiceMove, Json]):
    """One pass per Service of our class."""

    kind = SERVICES
    finalizer = FINALIZER

    def __init__(
        self,
        kube: Kube,
        regions: Regions,
        observer: CloudServiceObserver,
        settings: LoadBalancerFeatures,
    ) -> None:
        self._kube, self._regions = kube, regions
        self._observer, self._settings = observer, settings

    def is_managed(self, service: Json) -> bool:
        """Whether a Service gets a pass, and with it our finalizer."""
        return allocation.is_managed(service, self._settings)

    async def see(self, obj: Json, reader: Reader) -> ObservedService:
        return await self._observer.see(obj, reader)

    def plan(self, obj: Json, seen: ObservedService) -> CloudServiceMove:
        return plan_service(obj, seen, self._settings)

    async def act(self, move: CloudServiceMove) -> Any:
        match move:
            case AssignAddresses():
                await self._perform(move.reserve)
                written = await self._kube.merge(SERVICES, move.name, move.change, move.namespace)
                await self._perform(move.release)
                return written
            case KeepAddresses():
                await self._perform(move.reserve)
            case ReleaseServiceAddresses():
                await self._perform(move.release)
            case StopManaging():
                return await self._stop_managing(move)
        return None

    async def _perform(self, steps: Sequence[ReserveVnetAddress | ReleaseVnetAddress]) -> None:
        for step in steps:
            await self._regions[step.region].perform(step, NAME)

    async def _stop_managing(self, move: StopManaging) -> Any:
        await self._perform(move.release)
        written = await self._kube.merge(SERVICES, move.name, move.change, move.namespace)
        if move.clear_status:
            empty = {"status": {"loadBalancer": {"ingress": None}}}
            await self._kube.merge_status(SERVICES, move.name, empty, move.namespace)
        return await finalizer.remove(self._kube, SERVICES, written, FINALIZER)

    def describe(self, obj: Json, seen: ObservedService, move: CloudServiceMove) -> Json | None:
        if isinstance(move, AssignAddresses | KeepAddresses):
            return allocation.status(move.allocated)
        return None

    def events(self, obj: Json, seen: ObservedService, move: CloudServiceMove) -> Sequence[Note]:
        match move:
            case Wait(reason, message):
                return (Note(reason, message, "Warning"),)
            case Done():
                return (Note(CloudServiceReason.DELETED, "Deleted load balancer"),)
            case AssignAddresses() | KeepAddresses():
                return tuple(_address_events(seen, move))
        return ()


def _address_events(seen: ObservedService, move: AssignAddresses | KeepAddresses) -> Sequence[Note]:
    notes = []
    if isinstance(move, AssignAddresses):
        text = f"Ensured load balancer at {', '.join(a.address for a in move.allocated)}"
        notes.append(Note(CloudServiceReason.ENSURED, text))
    notes += [Note(CloudServiceReason.SYNC_FAILED, why, "Warning") for why in move.failures]
    if not seen.has_nodes:
        text = "There are no available nodes for LoadBalancer"
        notes.append(Note(CloudServiceReason.NO_NODES, text, "Warning"))
    return notes
