"""What is decided about clones that died: as tables."""

from datetime import UTC, datetime
from typing import Any

import pytest

from moxwell.api.conditions import Condition
from moxwell.api.infra.machine import MachineSpec, MachineStatus, ProxmoxMachine
from moxwell.api.infra.template import Claim
from moxwell.api.meta import ObjectMeta
from moxwell.controllers.infra.machine.describe import TIDY, describe
from moxwell.controllers.infra.machine.observed import Carcass, GuestFound, Seen
from moxwell.controllers.infra.machine.plan import ForgetCarcass, Move, next_move
from moxwell.controllers.infra.owners import KEEP
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import GuestSeen
from moxwell.pve.ownership import Mark
from moxwell.pve.steps import Guest, RemoveCarcass
from moxwell.runtime.move import Done, Wait

UID = "11111111-2222-4333-8444-555555555555"
MARK = Mark(UID)
LOCKED = Carcass("r", 55, "locked", "a")
FREE = Carcass("r", 55, "removable", "a")
ROOT = Carcass("r", 55, "removable", "a", skip_lock=True)
GONE = Carcass("r", 55, "gone")
OTHER = Carcass("r", 66, "locked", "b")
DOWN = Carcass("r", 55, "unknown")
LIVES = GuestFound(
    GuestSeen(101, "a", status="running", tags=("moxwell", MARK.tag)), True, marked=True
)
DYING = GuestFound(GuestSeen(101, "a", lock="clone"), False, arriving=True)


def obj(*left: str, deleting: bool = False, kept: bool = False, **spec: Any) -> ProxmoxMachine:
    claim = Claim(host="a", uuid=UID, template=9000, template_host="a", left=left)
    given: dict[str, Any] = {"region": "r", "virtual_machine_id": 101, "claim": claim}
    when = datetime(2026, 1, 1, tzinfo=UTC) if deleting else None
    notes = {KEEP: "true"} if kept else {}
    meta = ObjectMeta(name="m", uid=UID, deletion_timestamp=when, annotations=notes)
    return ProxmoxMachine(metadata=meta, spec=MachineSpec(**{**given, **spec}))


def remove(skip: bool = False) -> RemoveCarcass:
    return RemoveCarcass(Guest("r", "a", 55, MARK), skip_lock=skip)


NAMED: dict[str, Any] = {"provider_id": "proxmox://r/101"}


@pytest.mark.parametrize(
    "machine, seen, move",
    [
        pytest.param(obj(**NAMED), Seen(guest=LIVES), Done(), id="nothing was ever left"),
        pytest.param(
            obj("r/55", **NAMED), Seen(guest=LIVES, carcasses=(FREE,)), remove(), id="unlocked"
        ),
        pytest.param(
            obj("r/55", **NAMED), Seen(guest=LIVES, carcasses=(ROOT,)), remove(True), id="as root"
        ),
        pytest.param(
            obj("r/55", **NAMED),
            Seen(guest=LIVES, carcasses=(LOCKED,)),
            Wait("CloneLeftBehind", str(LOCKED)),
            id="still locked",
        ),
        pytest.param(
            obj("r/55", **NAMED),
            Seen(guest=LIVES, carcasses=(DOWN,)),
            Wait("CloneLeftBehind", str(DOWN)),
            id="its host is down",
        ),
        pytest.param(
            obj("r/55", "r/66", **NAMED),
            Seen(guest=LIVES, carcasses=(GONE, OTHER)),
            ForgetCarcass(("r/66",)),
            id="one of two is gone",
        ),
        pytest.param(
            obj(deleting=True),
            Seen(guest=DYING, dead=True, carcasses=(Carcass("r", 101, "locked", "a"),)),
            Wait("CloneLeftBehind", str(Carcass("r", 101, "locked", "a"))),
            id="deleted as its clone lies dead",
        ),
        pytest.param(
            obj(deleting=True, kept=True),
            Seen(guest=DYING, dead=True, carcasses=(Carcass("r", 101, "locked", "a"),)),
            Done(),
            id="deleted, but to be kept",
        ),
        pytest.param(
            obj("r/55", deleting=True, **NAMED),
            Seen(gone=True, carcasses=(LOCKED,)),
            Wait("CloneLeftBehind", str(LOCKED)),
            id="the guest is gone, an old clone is not",
        ),
    ],
)
def test_next_move(machine: ProxmoxMachine, seen: Seen, move: Move) -> None:
    assert next_move(machine, seen) == move


def tidy(machine: ProxmoxMachine, seen: Seen) -> tuple[str, str]:
    said = describe(machine, seen, next_move(machine, seen)).conditions
    ready = next(c.status for c in said if c.type == "Ready")
    return ready, next((c.status for c in said if c.type == TIDY), "")


def test_the_machine_is_well_while_something_lies_about() -> None:
    seen = Seen(guest=LIVES, carcasses=(LOCKED,), bootstrapped=True)
    assert tidy(obj("r/55", **NAMED), seen) == ("True", "False")
    assert tidy(obj(**NAMED), Seen(guest=LIVES, bootstrapped=True)) == ("True", "")
    known = MachineStatus(conditions=(Condition(type=TIDY, status="False"),))
    before = obj(**NAMED)
    after = ProxmoxMachine(metadata=before.metadata, spec=before.spec, status=known)
    assert tidy(after, Seen(guest=LIVES, bootstrapped=True)) == ("True", "True")


@pytest.mark.parametrize(
    "raw, dead",
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
def test_the_shape_of_a_carcass(raw: dict[str, str], dead: bool) -> None:
    assert GuestConfig(raw).is_carcass is dead
