"""The machine's plan as a table: world in, move out; and the promise that it settles."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from moxwell.api.capi.core import Bootstrap as BootstrapRef
from moxwell.api.capi.core import Cluster, Machine, MachineStatus, NodeRef
from moxwell.api.capi.core import MachineSpec as CapiMachineSpec
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import MachineSpec, ProxmoxMachine
from moxwell.api.infra.network import PoolRef
from moxwell.api.infra.template import BootVolume, Claim, Disks, HighAvailability
from moxwell.api.meta import ObjectMeta
from moxwell.bootstrap.bootstrap_data import Bootstrap
from moxwell.bootstrap.network_plan import Want, devices_of
from moxwell.controllers.infra.machine.describe import describe, is_provisioned
from moxwell.controllers.infra.machine.observed import (
    BOOTING,
    KEPT,
    AddressesSeen,
    Around,
    Choice,
    GuestFound,
    Seen,
)
from moxwell.controllers.infra.machine.plan import (
    AskAddresses,
    GiveBack,
    Move,
    NameIt,
    TakeClaim,
    next_move,
)
from moxwell.controllers.infra.owners import KEEP
from moxwell.controllers.infra.task_backoff import Setback
from moxwell.pve import errors
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import GuestSeen
from moxwell.pve.ownership import Mark
from moxwell.pve.steps import (
    Clone,
    Configure,
    DeleteVolume,
    Destroy,
    Migrate,
    RegisterHa,
    Resize,
    SetFirewall,
    Shutdown,
    Start,
    Stop,
    UploadIso,
)
from moxwell.runtime.move import Done, Wait
from moxwell.scheduling.placement import Placement

UID = "11111111-2222-4333-8444-555555555555"
MARK = Mark(UID)
CLAIM = Claim(host="a", uuid=UID, template=9000, template_host="a", iso_storage="local")
NAMED = "proxmox://r/101"
WANT = Want("m-net0-00-inet", "net0", PoolRef(name="p"))
CONFIG = GuestConfig({"scsi0": "lvm:vm-101-disk-0,size=8G", "boot": "order=scsi0", "digest": "d"})
MACHINE = Machine(
    metadata=ObjectMeta(name="m", namespace="n"),
    spec=CapiMachineSpec(cluster_name="c", bootstrap=BootstrapRef(data_secret_name="m")),
)
NODE = structs.replace(MACHINE, status=MachineStatus(node_ref=NodeRef(name="m")))
AROUND = Around(MACHINE, Cluster(), ProxmoxCluster())


def obj(deleting: bool = False, notes: dict[str, str] | None = None, **spec: Any) -> ProxmoxMachine:
    given: dict[str, Any] = {"region": "r", "virtual_machine_id": 101, "claim": CLAIM, **spec}
    when = datetime(2026, 1, 1, tzinfo=UTC) if deleting else None
    meta = ObjectMeta(
        name="m", namespace="n", uid=UID, deletion_timestamp=when, annotations=notes or {}
    )
    return ProxmoxMachine(metadata=meta, spec=MachineSpec(**given))


def guest(status: str = "stopped", *tags: str, marked: bool = True, **more: Any) -> GuestFound:
    labels = (*MARK.tags().split(";"), *tags) if marked else ()
    seen = GuestSeen(
        101, more.pop("host", "a"), status=status, tags=labels, lock=more.pop("lock", "")
    )
    if "hastate" in more:
        seen = replace(seen, hastate=more.pop("hastate"))
    config = None if marked else CONFIG
    return GuestFound(seen, more.pop("ours", True), marked=marked, **{"config": config, **more})


def seen(**more: Any) -> Seen:
    return Seen(**{"around": AROUND, "devices": devices_of(MachineSpec(), {}), **more})


LATER = Setback(errors.StorageFull("full"), 1, 99.0)
READY = {"iso_there": True, "addresses": AddressesSeen((WANT,))}


@pytest.mark.parametrize(
    "machine, world, expected",
    [
        pytest.param(obj(), seen(stuck=Wait("X")), Wait("X"), id="others must do something first"),
        pytest.param(obj(), seen(), Clone, id="claimed, nothing there"),
        pytest.param(obj(), seen(setback=LATER, pause_seconds=5.0), "StorageFull", id="it failed"),
        pytest.param(obj(), seen(task=True), "Cloning", id="the clone runs"),
        pytest.param(
            obj(),
            seen(task=True, addresses=AddressesSeen((WANT,), (WANT,))),
            AskAddresses((WANT,), ()),
            id="the clone runs: ask for addresses",
        ),
        pytest.param(
            obj(),
            seen(task=True, addresses=AddressesSeen((WANT,), pending=("m-net0-00-inet",))),
            "WaitingForAddresses",
            id="no answer to a claim yet",
        ),
        pytest.param(
            obj(),
            seen(task=True, iso_there=False, bootstrap=Bootstrap(b"x")),
            UploadIso,
            id="the clone runs: bring the seed",
        ),
        pytest.param(
            obj(), seen(task=True, iso_there=False), "WaitingForBootstrapData", id="no Secret"
        ),
        pytest.param(
            obj(),
            seen(guest=guest(marked=False, ours=False, arriving=True)),
            "Cloning",
            id="being cloned, whose nobody knows",
        ),
        pytest.param(
            obj(),
            seen(guest=guest(marked=False, ours=False)),
            "VMIDTaken",
            id="a stranger has our id",
        ),
        pytest.param(
            obj(claim=structs.replace(CLAIM, host="b", detour=True)),
            seen(guest=guest(marked=False), **READY),
            Migrate,
            id="cloned beside its template",
        ),
        pytest.param(
            obj(disks=Disks(boot_volume=BootVolume(size_gb=20))),
            seen(guest=guest(marked=False), **READY),
            Resize,
            id="the disk is too small",
        ),
        pytest.param(
            obj(firewall_groups=("kube",)),
            seen(guest=guest(marked=False), **READY),
            SetFirewall,
            id="no security group around it",
        ),
        pytest.param(
            obj(firewall_groups=("kube",)),
            seen(guest=guest(marked=False, firewall_groups=frozenset({"kube"})), **READY),
            Configure,
            id="guarded: configure",
        ),
        pytest.param(obj(), seen(guest=guest(marked=False), **READY), Configure, id="a bare clone"),
        pytest.param(obj(), seen(guest=guest("stopped", BOOTING)), Start, id="configured"),
        pytest.param(
            obj(high_availability=HighAvailability()),
            seen(guest=guest("stopped", BOOTING)),
            RegisterHa,
            id="configured, HA starts it",
        ),
        pytest.param(
            obj(high_availability=HighAvailability()),
            seen(guest=guest("stopped", BOOTING, hastate="queued")),
            "WaitingForHA",
            id="HA is about to start it",
        ),
        pytest.param(obj(), seen(guest=guest("stopped", lock="backup")), "Locked", id="locked"),
        pytest.param(obj(), seen(guest=guest(), task=True), "TaskRunning", id="a task runs"),
        pytest.param(
            obj(), seen(guest=guest(host_online=False)), "HostDown", id="its host is down"
        ),
        pytest.param(
            obj(), seen(guest=guest("running", BOOTING)), NameIt(NAMED), id="started: name it"
        ),
        pytest.param(
            obj(provider_id=NAMED),
            seen(guest=guest("running", BOOTING), agent_says="silent"),
            "WaitingForBootstrap",
            id="it boots",
        ),
        pytest.param(
            obj(provider_id=NAMED),
            seen(guest=guest("running", BOOTING), bootstrapped=True),
            "WaitingForNode",
            id="bootstrapped, no node yet",
        ),
        pytest.param(
            obj(provider_id=NAMED),
            seen(
                guest=guest("running", BOOTING),
                bootstrapped=True,
                iso_there=True,
                around=replace(AROUND, machine=NODE),
            ),
            DeleteVolume,
            id="the node is there: the seed goes",
        ),
        pytest.param(
            obj(provider_id=NAMED),
            seen(
                guest=guest("running", BOOTING),
                bootstrapped=True,
                iso_there=False,
                around=replace(AROUND, machine=NODE),
            ),
            Configure,
            id="the seed is gone: eject and say so",
        ),
        pytest.param(obj(provider_id=NAMED), seen(guest=guest("running")), Done, id="it lives"),
        pytest.param(obj(provider_id=NAMED), seen(guest=guest()), "Stopped", id="stopped by hand"),
        pytest.param(
            obj(provider_id=NAMED, when_stopped="Start"),
            seen(guest=guest()),
            Start,
            id="stopped, to be started",
        ),
        pytest.param(obj(provider_id=NAMED), seen(), "Vanished", id="vanished"),
        pytest.param(
            obj(provider_id=NAMED),
            seen(guest=guest(marked=False, ours=False)),
            "Vanished",
            id="a stranger has its id now",
        ),
        pytest.param(
            obj(provider_id=NAMED),
            seen(guest=guest("running", marked=False)),
            Configure,
            id="its tags were taken away: marked again",
        ),
        pytest.param(
            obj(provider_id=NAMED, changes="InPlace", num_cores=4),
            seen(guest=guest("running", config=GuestConfig({"cores": "2", "digest": "d"}))),
            Configure,
            id="to be changed in place",
        ),
        pytest.param(
            obj(provider_id=NAMED, changes="InPlace", num_cores=4),
            seen(
                guest=guest(
                    "running",
                    config=GuestConfig({"cores": "4", "tags": MARK.tags(), "digest": "d"}),
                )
            ),
            Done,
            id="changed, pending until it restarts",
        ),
    ],
)
def test_next_move(machine: ProxmoxMachine, world: Seen, expected: Any) -> None:
    check(next_move(machine, world), expected)


def check(move: Move, expected: Any) -> None:
    if isinstance(expected, str):
        assert isinstance(move, Wait)
        assert move.reason == expected
    elif isinstance(expected, type):
        assert isinstance(move, expected)
    else:
        assert move == expected


@pytest.mark.parametrize(
    "machine, world, expected",
    [
        pytest.param(
            obj(True, region=None, virtual_machine_id=None, claim=None),
            seen(gone=True, iso_there=False),
            Done,
            id="never claimed",
        ),
        pytest.param(obj(True), seen(gone=True, iso_there=False), Done, id="nothing left"),
        pytest.param(obj(True), seen(), "WaitingForGuest", id="there, but not visible yet"),
        pytest.param(obj(True), seen(stuck=Wait("RegionUnreachable")), Wait, id="region down"),
        pytest.param(obj(True), seen(guest=guest("running")), Shutdown, id="running"),
        pytest.param(
            obj(True, shutdown_seconds=0), seen(guest=guest("running")), Stop, id="no time to lose"
        ),
        pytest.param(
            obj(True),
            seen(guest=guest("running"), setback=Setback(errors.WrongState("paused"), 1, 0.0)),
            Stop,
            id="paused: cannot shut down",
        ),
        pytest.param(obj(True), seen(guest=guest()), Destroy, id="stopped"),
        pytest.param(obj(True), seen(guest=guest(), task=True), "Deleting", id="a task runs"),
        pytest.param(obj(True), seen(guest=guest(lock="backup")), "Locked", id="locked"),
        pytest.param(obj(True), seen(guest=guest(host_online=False)), "HostDown", id="host down"),
        pytest.param(
            obj(True),
            seen(guest=guest(marked=False, ours=False, arriving=True)),
            "Cloning",
            id="still being cloned",
        ),
        pytest.param(
            obj(True),
            seen(guest=guest("running", marked=False, ours=False), gone=True, iso_there=False),
            Done,
            id="a stranger is never touched",
        ),
        pytest.param(
            obj(True), seen(gone=True, iso_there=True), DeleteVolume, id="its seed is left"
        ),
        pytest.param(
            obj(True), seen(gone=True, iso_there=True, task=True), "Deleting", id="its seed goes"
        ),
        pytest.param(
            obj(True),
            seen(gone=True, iso_there=True, claim_host_online=False),
            "HostDown",
            id="its seed is on a host that is down",
        ),
        pytest.param(
            obj(True),
            seen(gone=True, iso_there=False, owned_claims=("x",)),
            GiveBack(("x",)),
            id="its addresses are left",
        ),
        pytest.param(
            obj(True),
            seen(guest=guest("running", hastate="request_stop")),
            "Deleting",
            id="HA is stopping it",
        ),
        pytest.param(
            obj(True, {KEEP: "true"}), seen(guest=guest("running")), Configure, id="to be kept"
        ),
        pytest.param(
            obj(True, {KEEP: "true"}),
            seen(guest=guest("running", KEPT), owned_claims=("x",)),
            GiveBack(("x",), keep=True),
            id="kept, with its addresses",
        ),
        pytest.param(
            obj(True, {KEEP: "true"}), seen(guest=guest("running", KEPT)), Done, id="kept"
        ),
        pytest.param(
            obj(True, provider_id=NAMED),
            seen(guest=guest("running", marked=False)),
            Configure,
            id="known by its UUID alone: marked before anything else",
        ),
    ],
)
def test_next_move_of_a_machine_that_goes(
    machine: ProxmoxMachine, world: Seen, expected: Any
) -> None:
    check(next_move(machine, world), expected)


def test_a_choice_is_claimed() -> None:
    choice = Choice("r", 101, CLAIM, Placement(None, ()), 1, 1, 1)
    machine = obj(virtual_machine_id=None, claim=None)
    assert next_move(machine, seen(choice=choice)) == TakeClaim(choice)


def test_the_first_write_says_everything_at_once() -> None:
    move = next_move(obj(num_cores=4, tags=("x",)), seen(guest=guest(marked=False), **READY))
    assert isinstance(move, Configure)
    assert move.digest == "d"
    assert {"cores", "net0", "ide2", "smbios1", "tags", "agent"} <= set(move.changes)
    assert move.changes["tags"] == f"moxwell;{MARK.tag};{BOOTING};x"


def test_bootstrap_data_never_shows() -> None:
    world = seen(task=True, iso_there=False, bootstrap=Bootstrap(b"token"))
    assert "token" not in repr(next_move(obj(), world))
    assert "token" not in repr(world)


@pytest.mark.parametrize(
    "machine, world, truth, provisioned",
    [
        pytest.param(obj(), seen(), "False", False, id="making"),
        pytest.param(
            obj(provider_id=NAMED),
            seen(guest=guest("running"), bootstrapped=True),
            "True",
            True,
            id="alive",
        ),
        pytest.param(
            obj(provider_id=NAMED),
            seen(stuck=Wait("RegionUnreachable", "x"), region_down="x"),
            "Unknown",
            False,
            id="nobody can tell",
        ),
    ],
)
def test_status(machine: ProxmoxMachine, world: Seen, truth: str, provisioned: bool) -> None:
    status = describe(machine, world, next_move(machine, world))
    assert next(c.status for c in status.conditions if c.type == "Ready") == truth
    assert bool(status.initialization.provisioned) == provisioned


def test_provisioned_is_for_ever() -> None:
    machine = obj(provider_id=NAMED)
    made = describe(machine, seen(guest=guest("running"), bootstrapped=True), Done())
    later = structs.replace(machine, status=made)
    assert is_provisioned(later, seen())
    lost = seen(stuck=Wait("RegionUnreachable"), region_down="gone")
    assert describe(later, lost, Wait("RegionUnreachable")).initialization.provisioned


class Pretended:
    """A guest that does what steps say, to see where the plan leads."""

    def __init__(self, start: GuestFound | None, iso: bool, named: bool, deleting: bool) -> None:
        self.guest, self.iso, self.named, self.deleting = start, iso, named, deleting

    def object(self) -> ProxmoxMachine:
        return obj(self.deleting, provider_id=NAMED if self.named else "")

    def look(self) -> Seen:
        around = replace(AROUND, machine=NODE)
        return seen(
            guest=self.guest,
            gone=self.guest is None,
            iso_there=self.iso,
            bootstrap=Bootstrap(b"x"),
            bootstrapped=True,
            around=around,
        )

    def apply(self, move: Move) -> None:
        match move:
            case Clone():
                self.guest = guest(marked=False)
            case UploadIso():
                self.iso = True
            case DeleteVolume():
                self.iso = False
            case Configure():
                was = self.guest
                assert was is not None
                tags = [t for t in move.changes["tags"].split(";") if t == BOOTING]
                self.guest = guest(was.seen.status, *tags)
            case Start():
                self.guest = guest("running", *([BOOTING] if self._booting else []))
            case NameIt():
                self.named = True
            case Shutdown():
                self.guest = guest("stopped", *([BOOTING] if self._booting else []))
            case Destroy():
                self.guest = None

    @property
    def _booting(self) -> bool:
        return self.guest is not None and self.guest.booting


guests = st.sampled_from(
    [None, guest(marked=False), guest("stopped", BOOTING), guest("running", BOOTING)]
)


@settings(deadline=None)
@given(start=guests, iso=st.booleans(), deleting=st.booleans())
def test_it_settles_from_any_state_of_making(
    start: GuestFound | None, iso: bool, deleting: bool
) -> None:
    world = Pretended(start, iso, named=False, deleting=deleting)
    for _ in range(12):
        move = next_move(world.object(), world.look())
        if move == Done():
            assert (world.guest is None) == deleting
            assert not world.iso
            return
        assert not isinstance(move, Wait), move
        world.apply(move)
    raise AssertionError("did not settle")
