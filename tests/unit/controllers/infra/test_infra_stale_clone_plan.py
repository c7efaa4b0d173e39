"""The plan for stale clones as a table; when a clone is stale."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from moxwell.api.capi.core import Cluster, Machine, MachineSpec
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineSpec
from moxwell.api.infra.template import Claim
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.infra.machine.describe import NO_STALE_CLONES, describe
from moxwell.controllers.infra.machine.moves import (
    ForgetStaleClone,
    MachineVersion,
    Move,
    TakeStep,
)
from moxwell.controllers.infra.machine.observed import (
    MachineGuest,
    ObservedProxmoxMachine,
    OwnerObjects,
    StaleClone,
)
from moxwell.controllers.infra.machine.plan import plan
from moxwell.controllers.infra.machine.replacement import is_stale
from moxwell.controllers.infra.owners import KEEP
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import ObservedGuest
from moxwell.pve.ownership import Mark
from moxwell.pve.steps import GuestRef, RemoveStaleClone
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait

UID = "11111111-2222-4333-8444-555555555555"
MARK = Mark(UID, "/")
LOCKED = StaleClone("r", 55, "locked", "a")
FREE = StaleClone("r", 55, "removable", "a")
ROOT = StaleClone("r", 55, "removable", "a", skip_lock=True)
GONE = StaleClone("r", 55, "gone")
OTHER = StaleClone("r", 66, "locked", "b")
DOWN = StaleClone("r", 55, "unknown")
LIVES = MachineGuest(
    ObservedGuest(101, "a", status="running", tags=("moxwell", MARK.tag)), True, marked=True
)
DYING = MachineGuest(ObservedGuest(101, "a", lock="clone"), False, cloning=True)


def obj(*stale: str, deleting: bool = False, kept: bool = False, **spec: Any) -> ProxmoxMachine:
    claim = Claim(host="a", uuid=UID, template=9000, template_host="a", stale_clones=stale)
    given: dict[str, Any] = {"region": "r", "virtual_machine_id": 101, "claim": claim}
    when = datetime(2026, 1, 1, tzinfo=UTC) if deleting else None
    notes = {KEEP: "true"} if kept else {}
    meta = ObjectMeta(name="m", uid=UID, deletion_timestamp=when, annotations=notes)
    return ProxmoxMachine(metadata=meta, spec=ProxmoxMachineSpec(**{**given, **spec}))


def remove(skip: bool = False) -> TakeStep:
    step = RemoveStaleClone(GuestRef("r", "a", 55, MARK), skip_lock=skip)
    return TakeStep(Key("", "m"), step)


def seen(**more: Any) -> ObservedProxmoxMachine:
    owners = OwnerObjects(Machine(spec=MachineSpec(cluster_name="c")), Cluster(), ProxmoxCluster())
    return ObservedProxmoxMachine(**{"machine": owners.machine, "owners": owners, **more})


NAMED: dict[str, Any] = {"provider_id": "proxmox://r/101"}


@pytest.mark.parametrize(
    "machine, world, move",
    [
        pytest.param(obj(**NAMED), seen(guest=LIVES), Done(), id="no stale clone"),
        pytest.param(
            obj("r/55", **NAMED), seen(guest=LIVES, stale_clones=(FREE,)), remove(), id="unlocked"
        ),
        pytest.param(
            obj("r/55", **NAMED),
            seen(guest=LIVES, stale_clones=(ROOT,)),
            remove(True),
            id="as root",
        ),
        pytest.param(
            obj("r/55", **NAMED),
            seen(guest=LIVES, stale_clones=(LOCKED,)),
            Wait("StaleClone", str(LOCKED)),
            id="still locked",
        ),
        pytest.param(
            obj("r/55", **NAMED),
            seen(guest=LIVES, stale_clones=(DOWN,)),
            Wait("StaleClone", str(DOWN)),
            id="its host is down",
        ),
        pytest.param(
            obj("r/55", "r/66", **NAMED),
            seen(guest=LIVES, stale_clones=(GONE, OTHER)),
            ForgetStaleClone(MachineVersion("", "m", UID, ""), ("r/66",)),
            id="one of two is gone",
        ),
        pytest.param(
            obj(deleting=True),
            seen(
                guest=DYING,
                idle_clone_seconds=60.0,
                clone_tasks_run=False,
                stale_clones=(StaleClone("r", 101, "locked", "a"),),
            ),
            Wait("StaleClone", str(StaleClone("r", 101, "locked", "a"))),
            id="deleted as its clone lies dead",
        ),
        pytest.param(
            obj(deleting=True, kept=True),
            seen(
                guest=DYING,
                idle_clone_seconds=60.0,
                clone_tasks_run=False,
                stale_clones=(StaleClone("r", 101, "locked", "a"),),
            ),
            Done(),
            id="deleted, but to be kept",
        ),
        pytest.param(
            obj("r/55", deleting=True, **NAMED),
            seen(vmid_free=True, stale_clones=(LOCKED,)),
            Wait("StaleClone", str(LOCKED)),
            id="the guest is gone, an old clone is not",
        ),
    ],
)
def test_next_move(machine: ProxmoxMachine, world: ObservedProxmoxMachine, move: Move) -> None:
    assert plan(machine, world) == move


def conditions(machine: ProxmoxMachine, world: ObservedProxmoxMachine) -> tuple[str, str]:
    found = describe(machine, world, plan(machine, world))["conditions"]
    ready = next(c["status"] for c in found if c["type"] == "Ready")
    return ready, next(c["status"] for c in found if c["type"] == NO_STALE_CLONES)


def test_the_machine_is_ready_while_a_stale_clone_exists() -> None:
    world = seen(guest=LIVES, stale_clones=(LOCKED,), bootstrapped=True)
    assert conditions(obj("r/55", **NAMED), world) == ("True", "False")
    assert conditions(obj(**NAMED), seen(guest=LIVES, bootstrapped=True)) == ("True", "True")
    gone = seen(guest=LIVES, stale_clones=(GONE,), bootstrapped=True)
    assert conditions(obj("r/55", **NAMED), gone) == ("True", "True")


OFFLINE = replace(DYING, host_online=False)
UNLOCKED = replace(
    DYING, cloning=False, config=GuestConfig({"description": "qmclone temporary file"})
)


@pytest.mark.parametrize(
    "world, stale",
    [
        pytest.param({"guest": None}, False, id="no guest"),
        pytest.param({"guest": DYING}, False, id="idle time not known"),
        pytest.param({"idle_clone_seconds": 59.0}, False, id="idle for too short a time"),
        pytest.param({"idle_clone_seconds": 60.0}, False, id="tasks of the host not read"),
        pytest.param(
            {"idle_clone_seconds": 60.0, "clone_tasks_run": True}, False, id="a clone runs"
        ),
        pytest.param({"idle_clone_seconds": 60.0, "clone_tasks_run": False}, True, id="idle"),
        pytest.param({"guest": OFFLINE, "idle_clone_seconds": 299.0}, False, id="just offline"),
        pytest.param({"guest": OFFLINE, "idle_clone_seconds": 300.0}, True, id="offline for long"),
        pytest.param({"guest": UNLOCKED}, True, id="unlocked by root"),
        pytest.param({"guest": UNLOCKED, "task_running": True}, False, id="a task of ours runs"),
    ],
)
def test_when_a_clone_is_stale(world: dict[str, Any], stale: bool) -> None:
    assert is_stale(obj(), seen(**{"guest": DYING, **world})) is stale


@pytest.mark.parametrize(
    "raw, stale",
    [
        pytest.param(
            {"description": " qmclone temporary file", "lock": "clone"}, True, id="locked"
        ),
        pytest.param({"description": "qmclone temporary file"}, True, id="unlocked by root"),
        pytest.param({"description": "qmclone temporary file", "name": "x"}, False, id="named"),
        pytest.param({"description": "qmclone temporary file", "scsi0": "a:b"}, False, id="disk"),
        pytest.param({"description": "mine", "lock": "clone"}, False, id="described by somebody"),
        pytest.param({"lock": "clone"}, False, id="not described"),
        pytest.param(
            {"description": "qmclone temporary file", "lock": "backup"}, False, id="another lock"
        ),
    ],
)
def test_the_configuration_of_a_stale_clone(raw: dict[str, str], stale: bool) -> None:
    assert GuestConfig(raw).is_stale_clone is stale
