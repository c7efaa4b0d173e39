"""
How far the termination of a node is: draining, volumes, instance.

The node controller acts on it and the status of the node claim describes it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from moxwell.api.core.nodes import Node
from moxwell.api.core.pods import Pod
from moxwell.api.core.storage import PersistentVolumeClaim, VolumeAttachment
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.meta import parse_time
from moxwell.clock import Clock
from moxwell.controllers.karpenter.drain import DrainState, drain_state, is_drainable
from moxwell.controllers.karpenter.lookup import NODE_NAME, ClaimLookup
from moxwell.controllers.karpenter.names import TERMINATION_TIMESTAMP
from moxwell.controllers.karpenter.provider import InstanceReader, InstanceState, NodeInstance
from moxwell.runtime.cache import Cache
from moxwell.runtime.caches import Caches
from moxwell.runtime.index import by_field
from moxwell.runtime.key import Key

MIN_DRAIN_SECONDS = 5.0  # the scheduler may bind pods before it sees the taint


class TerminationPhase(StrEnum):
    """What a node that is being deleted waits for."""

    DRAINING = "Draining"
    DETACHING = "AwaitingVolumeDetachment"
    TERMINATING = "InstanceTerminating"


@dataclass(frozen=True, slots=True)
class NodeTermination:
    """A node that is being deleted, with what runs on it and what is attached to it."""

    now: datetime
    node: Node
    claim: NodeClaim | None
    instance: NodeInstance | None
    pods: tuple[Pod, ...] = ()
    attachments: tuple[str, ...] = ()

    @property
    def deadline(self) -> datetime | None:
        """When the termination grace period of the node claim ends."""
        return termination_time(self.claim) if self.claim is not None else None

    @property
    def is_machine_lost(self) -> bool:
        """Whether Proxmox has no machine of the node."""
        return self.instance is None or self.instance.state is InstanceState.LOST

    @property
    def is_overdue(self) -> bool:
        return self.deadline is not None and self.now > self.deadline

    @property
    def drain(self) -> DrainState:
        return drain_state(self.pods, self.now, self.deadline)

    @property
    def drain_seconds_left(self) -> float:
        """Until the node was draining for the least time."""
        start = self.node.metadata.deletion_timestamp or self.now
        return max(0.0, MIN_DRAIN_SECONDS - (self.now - start).total_seconds())

    @property
    def phase(self) -> TerminationPhase:
        if self.drain.waiting or self.drain_seconds_left > 0:
            return TerminationPhase.DRAINING
        if self.attachments and not self.is_overdue:
            return TerminationPhase.DETACHING
        return TerminationPhase.TERMINATING


def termination_time(claim: NodeClaim) -> datetime | None:
    """The end of the termination grace period; None if there is none or it is malformed."""
    text = claim.metadata.annotations.get(TERMINATION_TIMESTAMP)
    try:
        found = None if text is None else parse_time(text)
    except (ValueError, OverflowError):
        return None
    return found


def new_termination_time(claim: NodeClaim, seconds: float) -> str:
    """The annotation for a grace period that begins with the deletion of the node claim."""
    assert claim.metadata.deletion_timestamp is not None
    end = claim.metadata.deletion_timestamp + timedelta(seconds=seconds)
    return end.strftime("%Y-%m-%dT%H:%M:%SZ")


def pending_attachments(
    attachments: Iterable[VolumeAttachment], undrained_volumes: frozenset[str]
) -> tuple[str, ...]:
    """The attachments that the termination waits for: not those of pods that stay."""
    return tuple(
        a.metadata.name
        for a in attachments
        if a.spec.source.persistent_volume_name is not None
        and a.spec.source.persistent_volume_name not in undrained_volumes
    )


class TerminationObserver:
    """Reads the state of nodes that are being deleted."""

    def __init__(
        self, caches: Caches, lookup: ClaimLookup, provider: InstanceReader, clock: Clock
    ) -> None:
        self._lookup, self._provider, self._clock = lookup, provider, clock
        self._claims: Cache[PersistentVolumeClaim] = caches.of(PersistentVolumeClaim)
        self._attachments: Cache[VolumeAttachment] = caches.of(
            VolumeAttachment, {NODE_NAME: by_field("spec.nodeName")}
        )

    async def observe(self, node: Node) -> NodeTermination:
        """The state of one node."""
        claim, now = self._lookup.claim_of(node), self._clock.now()
        pods = self._lookup.pods_on(node.metadata.name)
        attached = self._attachments.by(NODE_NAME, node.metadata.name)
        staying = (p for p in pods if not is_drainable(p, now))
        volumes = frozenset(v for p in staying for v in self._volumes(p))
        return NodeTermination(
            now,
            node,
            claim,
            await self._instance(node, claim),
            pods,
            pending_attachments(attached, volumes),
        )

    async def _instance(self, node: Node, claim: NodeClaim | None) -> NodeInstance | None:
        if claim is not None:
            return await self._provider.instance(claim)
        found = await self._provider.instances()
        return next((i for i in found if i.provider_id == node.spec.provider_id), None)

    def _volumes(self, pod: Pod) -> Iterable[str]:
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim is None:
                continue
            name = volume.persistent_volume_claim.claim_name
            claim = self._claims.find(Key(pod.metadata.namespace, name))
            if claim is not None and claim.spec.volume_name:
                yield claim.spec.volume_name
