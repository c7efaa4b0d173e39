"""The controller of Kamaji: runs the control plane of each TenantControlPlane."""

from collections.abc import Sequence
from typing import Any

from moxwell.api.kamaji import TenantControlPlane, TenantControlPlaneStatus
from moxwell.clock import Clock
from moxwell.embedded.clusterapi.tenantcontrolplane.plan import (
    ControlPlaneRunner,
    DestroyControlPlane,
    EnsureControlPlane,
    ObservedTenantControlPlane,
    SleepControlPlane,
    TenantControlPlaneMove,
    TenantControlPlaneReason,
    ca_name,
    describe,
    kubeconfig_name,
    next_move,
    spec_of,
)
from moxwell.embedded.clusterapi.tenantcontrolplane.states import ControlPlaneStates
from moxwell.embedded.controllermanager.resources import SECRETS
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Note, Reconciler
from moxwell.runtime.writes import Create, Merge, Writes


class TenantControlPlaneController(
    Reconciler[
        TenantControlPlane,
        ObservedTenantControlPlane,
        TenantControlPlaneMove,
        TenantControlPlaneStatus,
    ]
):
    """Reconciles TenantControlPlanes; the runner's changes must be passed to ``forget``."""

    kind = TenantControlPlane
    finalizer = "kamaji.clastix.io"

    def __init__(self, kube: Kube, runner: ControlPlaneRunner, clock: Clock) -> None:
        self._kube, self._states = kube, ControlPlaneStates(runner, clock)

    def forget(self, key: Key) -> None:
        """The state of a control plane has changed: ask the runner again in the next pass."""
        self._states.forget(key)

    async def see(self, tenant: TenantControlPlane, reader: Reader) -> ObservedTenantControlPlane:
        names = (kubeconfig_name(tenant), ca_name(tenant))
        secrets = {n: await reader.find(SECRETS, n, tenant.namespace) for n in names}
        return ObservedTenantControlPlane(self._states.find(spec_of(tenant)), secrets)

    def plan(
        self, tenant: TenantControlPlane, seen: ObservedTenantControlPlane
    ) -> TenantControlPlaneMove:
        return next_move(tenant, seen)

    async def act(self, move: TenantControlPlaneMove) -> Any:
        match move:
            case EnsureControlPlane(spec):
                await self._states.ensure(spec)
            case SleepControlPlane(key):
                await self._states.sleep(key)
            case DestroyControlPlane(key):
                await self._states.destroy(key)
            case Writes():
                await move.perform(self._kube)

    def describe(
        self,
        tenant: TenantControlPlane,
        seen: ObservedTenantControlPlane,
        move: TenantControlPlaneMove,
    ) -> TenantControlPlaneStatus | None:
        return describe(tenant, seen)

    def events(
        self,
        tenant: TenantControlPlane,
        seen: ObservedTenantControlPlane,
        move: TenantControlPlaneMove,
    ) -> Sequence[Note]:
        reason = TenantControlPlaneReason.SECRET_WRITTEN
        written = [
            Note(reason, f"wrote Secret {_name(write)}")
            for write in (move.writes if isinstance(move, Writes) else ())
            if isinstance(write, Create | Merge)
        ]
        return written + restart_notes(seen)

    def requeue_after(
        self,
        tenant: TenantControlPlane,
        seen: ObservedTenantControlPlane,
        move: TenantControlPlaneMove,
    ) -> float | None:
        if isinstance(move, SleepControlPlane):
            return None
        return super().requeue_after(tenant, seen, move)


def restart_notes(seen: ObservedTenantControlPlane) -> list[Note]:
    """The event of a process that has ended and is started again."""
    state = seen.state
    if state is None or state.ready or not state.last_exit:
        return []
    text = f"{state.last_exit}; it is started again"
    return [Note(TenantControlPlaneReason.PROCESS_RESTARTED, text, "Warning")]


def _name(write: Create | Merge) -> str:
    return write.name if isinstance(write, Merge) else str(write.obj["metadata"]["name"])
