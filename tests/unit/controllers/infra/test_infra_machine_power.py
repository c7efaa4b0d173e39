"""Every state of QEMU: what it is called, how a guest in it is deleted, started and reported."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from moxwell.api.capi.core import Bootstrap, Cluster, Machine
from moxwell.api.capi.core import MachineSpec as CapiMachineSpec
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineSpec
from moxwell.api.infra.template import Claim
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.infra.guest_names import mark_of
from moxwell.controllers.infra.machine.describe import describe
from moxwell.controllers.infra.machine.moves import SetProviderID, TakeStep
from moxwell.controllers.infra.machine.observed import (
    MachineGuest,
    ObservedProxmoxMachine,
    OwnerObjects,
)
from moxwell.controllers.infra.machine.plan import plan
from moxwell.pve import errors
from moxwell.pve.client import PveWriter
from moxwell.pve.model import ObservedGuest
from moxwell.pve.run_states import RunState, executes, has_process
from moxwell.pve.steps import Destroy, GuestRef, Shutdown, Start, Stop
from moxwell.runtime.move import Done, Wait
from moxwell.testing.scripted_transport import ScriptedTransport

UID = "11111111-2222-4333-8444-555555555555"
UPID = "UPID:a:0000CAFE:0000CAFE:65000000:qmstop:101:u@pve:"
MACHINE = Machine(
    metadata=ObjectMeta(name="m", namespace="n"),
    spec=CapiMachineSpec(cluster_name="c", bootstrap=Bootstrap(data_secret_name="m")),
)


def obj(*, deleting: bool = False, **spec: Any) -> ProxmoxMachine:
    claim = Claim(host="a", uuid=UID, template=9000, template_host="a")
    when = datetime(2026, 1, 1, tzinfo=UTC) if deleting else None
    meta = ObjectMeta(name="m", namespace="n", uid=UID, deletion_timestamp=when)
    given: dict[str, Any] = {"region": "r", "virtual_machine_id": 101, "claim": claim, **spec}
    return ProxmoxMachine(metadata=meta, spec=ProxmoxMachineSpec(**given))


def seen(status: str) -> ObservedProxmoxMachine:
    tags = tuple(mark_of(obj()).tags().split(";"))
    guest = MachineGuest(ObservedGuest(101, "a", status=status, tags=tags), True, marked=True)
    owners = OwnerObjects(MACHINE, Cluster(), ProxmoxCluster())
    return ObservedProxmoxMachine(machine=MACHINE, owners=owners, guest=guest)


def outcome(move: object) -> object:
    """The class of a step or move, the reason of a wait."""
    if isinstance(move, TakeStep):
        return type(move.step)
    return str(move.reason) if isinstance(move, Wait) else type(move)


ROWS = [
    # state, when deleted, before the providerID, afterwards
    ("running", Shutdown, SetProviderID, Done),
    ("stopped", Destroy, Start, "Stopped"),
    ("unknown", Destroy, Start, "Stopped"),
    ("paused", Stop, "Paused", "Paused"),
    ("debug", Stop, "Paused", "Paused"),
    ("suspended", Stop, "Suspended", "Suspended"),
    ("prelaunch", Stop, "Starting", "Starting"),
    ("shutdown", Stop, "Stopped", "Stopped"),
    ("internal-error", Stop, "GuestFailed", "GuestFailed"),
    ("io-error", Stop, "GuestFailed", "GuestFailed"),
    ("watchdog", Stop, "GuestFailed", "GuestFailed"),
    ("guest-panicked", Stop, "GuestFailed", "GuestFailed"),
    ("inmigrate", Stop, "Migrating", "Migrating"),
    ("finish-migrate", Stop, "Migrating", "Migrating"),
    ("postmigrate", Stop, "Migrating", "Migrating"),
    ("save-vm", Stop, "TaskRunning", "TaskRunning"),
    ("restore-vm", Stop, "TaskRunning", "TaskRunning"),
    ("colo", Stop, "TaskRunning", "TaskRunning"),
    ("a-state-of-a-later-qemu", Stop, "Stopped", "Stopped"),
]


@pytest.mark.parametrize(("status", "deleted", "first", "later"), ROWS)
def test_each_state(status: str, deleted: type, first: object, later: object) -> None:
    state = seen(status)
    assert outcome(plan(obj(deleting=True), state)) is deleted
    assert outcome(plan(obj(), state)) == first
    named = obj(provider_id="proxmox://x")
    move = plan(named, state)
    assert outcome(move) == later
    reported = describe(named, state, move)
    ready = next(c for c in reported["conditions"] if c["type"] == "Ready")
    assert (ready["status"] == "True") is (status == "running")
    assert reported["powerState"] == status
    assert status == "running" or status in ready["message"]


def test_every_state_of_qemu_has_a_row() -> None:
    assert {state.value for state in RunState} <= {row[0] for row in ROWS}
    assert [s for s in RunState if executes(s)] == [RunState.RUNNING]
    assert all(has_process(s) for s in RunState)
    assert not any(map(has_process, ("", "stopped", "unknown")))


@pytest.mark.parametrize(
    ("qmp", "force", "sent"),
    [
        ("running", True, "shutdown"),
        ("paused", True, "stop"),
        ("internal-error", True, "stop"),
        ("paused", False, None),
    ],
)
def test_a_shutdown_of_a_guest_that_does_not_execute(
    qmp: str, force: bool, sent: str | None
) -> None:
    mark = mark_of(obj())

    def answer(method: str, path: str, _: dict[str, Any]) -> Any:
        if method != "GET":
            return UPID
        return {"status": "running", "qmpstatus": qmp, "vmid": 101, "tags": mark.tags()}

    async def story() -> None:
        wire = ScriptedTransport(answer)
        step = Shutdown(GuestRef("r1", "a", 101, mark), force=force)
        if sent is None:
            with pytest.raises(errors.WrongState, match="paused"):
                await step.perform(PveWriter(wire))
        else:
            await step.perform(PveWriter(wire))
        written = [path.rpartition("/")[2] for method, path, _ in wire.sent if method != "GET"]
        assert written == ([sent] if sent else [])

    asyncio.run(story())
