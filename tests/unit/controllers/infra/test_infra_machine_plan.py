"""The plan of infra.machine as a table, and the property that it terminates from any state."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from moxwell.api.capi.core import Bootstrap as BootstrapRef
from moxwell.api.capi.core import (
    Cluster,
    ClusterInitialization,
    ClusterStatus,
    Machine,
    MachineInitialization,
    MachineNodeReference,
    MachineStatus,
)
from moxwell.api.capi.core import MachineSpec as CapiMachineSpec
from moxwell.api.infra.cluster import ProxmoxCluster, ProxmoxClusterSpec
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineSpec, ProxmoxMachineStatus
from moxwell.api.infra.network import PoolRef
from moxwell.api.infra.template import (
    BootVolume,
    Claim,
    HighAvailability,
    LastApplied,
    MachineDisks,
    VmidRangeSpec,
)
from moxwell.api.infra.warm_guests import RESERVED_FOR, WARM_GUEST_OF
from moxwell.api.meta import ObjectMeta
from moxwell.bootstrap.bootstrap_data import BootstrapData
from moxwell.bootstrap.network_plan import AddressRequest, devices_of
from moxwell.controllers.infra.guest_names import BOOTING, KEPT
from moxwell.controllers.infra.machine.describe import describe, is_provisioned
from moxwell.controllers.infra.machine.moves import (
    ClaimAddresses,
    DeleteWarmGuest,
    ForgetStaleClone,
    MachineVersion,
    Move,
    RecordApplied,
    ReleaseAddresses,
    ReserveVMID,
    SetAddressesAside,
    SetProviderID,
    TakeStep,
    name_of,
)
from moxwell.controllers.infra.machine.observed import (
    MachineGuest,
    MachineRegion,
    ObservedAddresses,
    ObservedPlacement,
    ObservedProxmoxMachine,
    OwnerObjects,
    TakenAddress,
    VmidUsage,
)
from moxwell.controllers.infra.machine.placement import placement_request
from moxwell.controllers.infra.machine.plan import plan
from moxwell.controllers.infra.machine.see import legacy_applied
from moxwell.controllers.infra.owners import KEEP
from moxwell.controllers.infra.task_backoff import TaskFailure
from moxwell.controllers.infra.templates import TemplateDetails
from moxwell.pve import errors
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import ObservedGuest
from moxwell.pve.ownership import Mark
from moxwell.pve.steps import (
    Clone,
    Configure,
    DeleteVolume,
    Destroy,
    Migrate,
    RegisterHa,
    ResizeDisk,
    SetFirewall,
    Shutdown,
    Start,
    Stop,
    UploadIso,
)
from moxwell.runtime.key import Key
from moxwell.runtime.move import Done, Wait
from moxwell.scheduling.guest_hardware import hardware_hash
from moxwell.scheduling.inventory_model import CandidateHost, HostKey, HostStorage, Template
from moxwell.scheduling.simulate import PlacementInput
from moxwell.scheduling.vmids import RangeExhausted

UID = "11111111-2222-4333-8444-555555555555"
MARK = Mark(UID, "n/")
CLAIM = Claim(host="a", uuid=UID, template=9000, template_host="a", iso_storage="local")
CHANGED = structs.replace(
    CLAIM, applied=LastApplied(hardware_hash=hardware_hash(ProxmoxMachineSpec(num_cores=4)))
)
NAMED = "proxmox://r/101"
UNREACHABLE = MachineRegion(reachable=False, error="timeout")
WANT = AddressRequest("m-net0-00-inet", "net0", PoolRef(name="p"))
TAKEN = TakenAddress("m-net0-00-inet", "net0", "10.0.0.5", "guest 7 (web)", "r", "vmbr0")
CONFIG = GuestConfig({"scsi0": "lvm:vm-101-disk-0,size=8G", "boot": "order=scsi0", "digest": "d"})
MACHINE = Machine(
    metadata=ObjectMeta(name="m", namespace="n"),
    spec=CapiMachineSpec(cluster_name="c", bootstrap=BootstrapRef(data_secret_name="m")),
)
NODE = structs.replace(MACHINE, status=MachineStatus(node_ref=MachineNodeReference(name="m")))
OWNERS = OwnerObjects(MACHINE, Cluster(), ProxmoxCluster())


def obj(deleting: bool = False, notes: dict[str, str] | None = None, **spec: Any) -> ProxmoxMachine:
    given: dict[str, Any] = {"region": "r", "virtual_machine_id": 101, "claim": CLAIM, **spec}
    when = datetime(2026, 1, 1, tzinfo=UTC) if deleting else None
    meta = ObjectMeta(
        name="m", namespace="n", uid=UID, deletion_timestamp=when, annotations=notes or {}
    )
    return ProxmoxMachine(metadata=meta, spec=ProxmoxMachineSpec(**given))


def guest(status: str = "stopped", *tags: str, marked: bool = True, **more: Any) -> MachineGuest:
    labels = (*MARK.tags().split(";"), *tags) if marked else ()
    seen = ObservedGuest(
        101, more.pop("host", "a"), status=status, tags=labels, lock=more.pop("lock", "")
    )
    if "hastate" in more:
        seen = replace(seen, hastate=more.pop("hastate"))
    config = None if marked else CONFIG
    return MachineGuest(seen, more.pop("ours", True), marked=marked, **{"config": config, **more})


def seen(**more: Any) -> ObservedProxmoxMachine:
    devices = devices_of(ProxmoxMachineSpec(), {})
    return ObservedProxmoxMachine(
        **{"machine": MACHINE, "owners": OWNERS, "devices": devices, **more}
    )


LATER = TaskFailure(errors.StorageFull("full"), 1, 99.0)
READY = {"iso_exists": True, "addresses": ObservedAddresses((WANT,))}


@pytest.mark.parametrize(
    "machine, world, expected",
    [
        pytest.param(
            obj(), seen(machine=None, owners=None), "WaitingForMachine", id="no Machine yet"
        ),
        pytest.param(obj(), seen(owners=None), "WaitingForCluster", id="no Cluster yet"),
        pytest.param(
            obj(virtual_machine_id=None, claim=None),
            seen(),
            "WaitingForClusterInfrastructure",
            id="the cluster is not provisioned yet",
        ),
        pytest.param(
            obj(),
            seen(region=MachineRegion(reachable=False, error="timeout")),
            "RegionUnreachable",
            id="the region does not answer",
        ),
        pytest.param(obj(), seen(), Clone, id="claimed, nothing there"),
        pytest.param(
            obj(), seen(failure=LATER, backoff_seconds=5.0), "StorageFull", id="it failed"
        ),
        pytest.param(obj(), seen(task_running=True), "Cloning", id="the clone runs"),
        pytest.param(
            obj(),
            seen(task_running=True, addresses=ObservedAddresses((WANT,), (WANT,))),
            ClaimAddresses,
            id="the clone runs: claim addresses",
        ),
        pytest.param(
            obj(),
            seen(
                task_running=True, addresses=ObservedAddresses((WANT,), pending=("m-net0-00-inet",))
            ),
            "WaitingForAddresses",
            id="no address for a claim yet",
        ),
        pytest.param(
            obj(),
            seen(task_running=True, addresses=ObservedAddresses((WANT,), taken=(TAKEN,))),
            SetAddressesAside,
            id="somebody else uses the address",
        ),
        pytest.param(
            obj(),
            seen(guest=guest(marked=False), addresses=ObservedAddresses((WANT,), taken=(TAKEN,))),
            SetAddressesAside,
            id="cloned: somebody else uses the address",
        ),
        pytest.param(
            obj(),
            seen(task_running=True, iso_exists=False, bootstrap=BootstrapData(b"x")),
            UploadIso,
            id="the clone runs: upload the bootstrap ISO",
        ),
        pytest.param(
            obj(),
            seen(task_running=True, iso_exists=False),
            "WaitingForBootstrapData",
            id="no Secret",
        ),
        pytest.param(
            obj(),
            seen(guest=guest(marked=False, ours=False, cloning=True)),
            "Cloning",
            id="being cloned",
        ),
        pytest.param(
            obj(),
            seen(guest=guest(marked=False, ours=False)),
            "VMIDTaken",
            id="the VMID has another owner",
        ),
        pytest.param(
            obj(claim=structs.replace(CLAIM, host="b", migrate_after_clone=True)),
            seen(guest=guest(marked=False), **READY),
            Migrate,
            id="cloned beside its template",
        ),
        pytest.param(
            obj(disks=MachineDisks(boot_volume=BootVolume(size_gb=20))),
            seen(guest=guest(marked=False), **READY),
            ResizeDisk,
            id="the disk is too small",
        ),
        pytest.param(
            obj(firewall_groups=("kube",)),
            seen(guest=guest(marked=False), **READY),
            SetFirewall,
            id="security group missing",
        ),
        pytest.param(
            obj(firewall_groups=("kube",)),
            seen(guest=guest(marked=False, firewall_groups=frozenset({"kube"})), **READY),
            Configure,
            id="firewall set: configure",
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
        pytest.param(
            obj(), seen(guest=guest(), task_running=True), "TaskRunning", id="a task runs"
        ),
        pytest.param(
            obj(), seen(guest=guest(host_online=False)), "HostDown", id="its host is down"
        ),
        pytest.param(obj(), seen(guest=guest("running", BOOTING)), SetProviderID, id="started"),
        pytest.param(
            obj(provider_id=NAMED),
            seen(guest=guest("running", BOOTING), agent_message="silent"),
            "WaitingForBootstrap",
            id="booting",
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
                iso_exists=True,
                machine=NODE,
            ),
            DeleteVolume,
            id="the node has joined: delete the ISO",
        ),
        pytest.param(
            obj(provider_id=NAMED),
            seen(
                guest=guest("running", BOOTING),
                bootstrapped=True,
                iso_exists=False,
                machine=NODE,
            ),
            Configure,
            id="the ISO is deleted: eject it",
        ),
        pytest.param(obj(provider_id=NAMED), seen(guest=guest("running")), Done, id="running"),
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
            id="the VMID has another owner now",
        ),
        pytest.param(
            obj(provider_id=NAMED),
            seen(guest=guest("running", marked=False)),
            Configure,
            id="its tags were removed: mark it again",
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
            RecordApplied,
            id="changed, pending until it restarts",
        ),
        pytest.param(
            obj(provider_id=NAMED, changes="InPlace", num_cores=4, claim=CHANGED),
            seen(
                guest=guest(
                    "running",
                    config=GuestConfig({"cores": "4", "tags": MARK.tags(), "digest": "d"}),
                )
            ),
            Done,
            id="changed and recorded",
        ),
    ],
)
def test_next_move(machine: ProxmoxMachine, world: ObservedProxmoxMachine, expected: Any) -> None:
    check(plan(machine, world), expected)


def check(move: Move, expected: Any) -> None:
    if isinstance(expected, str):
        assert isinstance(move, Wait)
        assert move.reason == expected
    elif isinstance(expected, type):
        assert isinstance(move.step if isinstance(move, TakeStep) else move, expected)
    else:
        assert move == expected


def step(move: Move) -> Any:
    assert isinstance(move, TakeStep)
    assert move.owner == Key("n", "m")
    return move.step


@pytest.mark.parametrize(
    "machine, world, expected",
    [
        pytest.param(
            obj(True, region=None, virtual_machine_id=None, claim=None),
            seen(vmid_free=True, iso_exists=False),
            Done,
            id="never claimed",
        ),
        pytest.param(obj(True), seen(vmid_free=True, iso_exists=False), Done, id="nothing left"),
        pytest.param(
            obj(True), seen(), "WaitingForGuest", id="exists, but not in the inventory yet"
        ),
        pytest.param(obj(True), seen(region=UNREACHABLE), Wait, id="region down"),
        pytest.param(obj(True), seen(guest=guest("running")), Shutdown, id="running"),
        pytest.param(
            obj(True, shutdown_seconds=0),
            seen(guest=guest("running")),
            Stop,
            id="no graceful shutdown",
        ),
        pytest.param(
            obj(True),
            seen(guest=guest("running"), failure=TaskFailure(errors.WrongState("paused"), 1, 0.0)),
            Stop,
            id="paused: cannot shut down",
        ),
        pytest.param(obj(True), seen(guest=guest()), Destroy, id="stopped"),
        pytest.param(
            obj(True), seen(guest=guest(), task_running=True), "Deleting", id="a task runs"
        ),
        pytest.param(obj(True), seen(guest=guest(lock="backup")), "Locked", id="locked"),
        pytest.param(obj(True), seen(guest=guest(host_online=False)), "HostDown", id="host down"),
        pytest.param(
            obj(True),
            seen(guest=guest(marked=False, ours=False, cloning=True)),
            "Cloning",
            id="still being cloned",
        ),
        pytest.param(
            obj(True),
            seen(
                guest=guest("running", marked=False, ours=False), vmid_free=True, iso_exists=False
            ),
            Done,
            id="a foreign guest is never touched",
        ),
        pytest.param(
            obj(True), seen(vmid_free=True, iso_exists=True), DeleteVolume, id="its ISO remains"
        ),
        pytest.param(
            obj(True),
            seen(vmid_free=True, iso_exists=True, task_running=True),
            "Deleting",
            id="its ISO is being deleted",
        ),
        pytest.param(
            obj(True),
            seen(vmid_free=True, iso_exists=True, claim_host_online=False),
            "HostDown",
            id="its ISO is on a host that is down",
        ),
        pytest.param(
            obj(True),
            seen(vmid_free=True, iso_exists=False, owned_claims=("x",)),
            ReleaseAddresses("n", ("x",)),
            id="its addresses remain",
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
            ReleaseAddresses("n", ("x",), keep=True),
            id="kept, with its addresses",
        ),
        pytest.param(
            obj(True, {KEEP: "true"}), seen(guest=guest("running", KEPT)), Done, id="kept"
        ),
        pytest.param(
            obj(True, provider_id=NAMED),
            seen(guest=guest("running", marked=False)),
            Configure,
            id="known by its UUID only: mark it first",
        ),
    ],
)
def test_next_move_of_a_deleted_machine(
    machine: ProxmoxMachine, world: ObservedProxmoxMachine, expected: Any
) -> None:
    check(plan(machine, world), expected)


HOST = CandidateHost(
    HostKey("r", "a"),
    cpus=8,
    memory_bytes=64 << 30,
    stores={"local": HostStorage("local", 1 << 40, content=frozenset({"images", "iso"}))},
)
TEMPLATE = TemplateDetails(
    Template(HostKey("r", "a"), 9000, "t", storages=frozenset({"local"})), {}, False
)


def placement(*hosts: CandidateHost) -> ObservedPlacement:
    request = placement_request(ProxmoxMachineSpec(), ProxmoxClusterSpec(), [TEMPLATE])
    given = PlacementInput(request, hosts, (TEMPLATE.template,))
    return ObservedPlacement(given, (TEMPLATE,), {"r": VmidUsage({}, frozenset())})


PROVISIONED = replace(
    OWNERS,
    cluster=Cluster(
        status=ClusterStatus(initialization=ClusterInitialization(infrastructure_provisioned=True))
    ),
)


def test_a_vmid_is_reserved_with_what_will_be_applied() -> None:
    machine = obj(virtual_machine_id=None, claim=None, region=None, tags=("B", "a"))
    move = plan(machine, seen(owners=PROVISIONED, placement=placement(HOST)))
    assert isinstance(move, ReserveVMID)
    assert move.target == MachineVersion.of(machine)
    assert (move.region, move.claim.host, move.claim.uuid) == ("r", "a", UID)
    assert move.claim.applied == LastApplied(tags=("a", "b"))
    assert (move.reservation.owner, move.reservation.vmid) == (UID, move.vmid)
    patch = move.patch()
    assert patch["spec"]["claim"]["host"] == "a"
    assert patch["spec"]["claim"]["zone"] is None  # replaces what an earlier claim says


def two_regions(**taken: int) -> ObservedPlacement:
    """Two equal hosts in regions ``r`` and ``s``; ``taken`` is the VMID in use in a region."""
    other = replace(HOST, key=HostKey("s", "a"))
    copy = replace(TEMPLATE, template=replace(TEMPLATE.template, key=HostKey("s", "a")))
    request = placement_request(ProxmoxMachineSpec(), ProxmoxClusterSpec(), [TEMPLATE, copy])
    given = PlacementInput(request, (HOST, other), (TEMPLATE.template, copy.template))
    usage = {r: VmidUsage({taken[r]} if r in taken else {}) for r in ("r", "s")}
    return ObservedPlacement(given, (TEMPLATE, copy), usage)


@pytest.mark.parametrize(
    ("taken", "region"), [({"r": 5000}, "s"), ({"s": 5000}, "r"), ({"r": 4999}, "r")]
)
def test_a_region_without_a_free_vmid_is_passed_over(taken: dict[str, int], region: str) -> None:
    only = VmidRangeSpec(start=5000, end=5000)
    machine = obj(virtual_machine_id=None, claim=None, region=None, vm_id_range=only)
    move = plan(machine, seen(owners=PROVISIONED, placement=two_regions(**taken)))
    assert isinstance(move, ReserveVMID)
    assert (move.region, move.vmid) == (region, 5000)


def test_no_region_has_a_free_vmid() -> None:
    only = VmidRangeSpec(start=5000, end=5000)
    machine = obj(virtual_machine_id=None, claim=None, region=None, vm_id_range=only)
    with pytest.raises(RangeExhausted, match="widen the range"):
        plan(machine, seen(owners=PROVISIONED, placement=two_regions(r=5000, s=5000)))


def test_without_room_it_waits_and_says_what_each_host_lacks() -> None:
    machine = obj(virtual_machine_id=None, claim=None, region=None)
    small = replace(HOST, memory_bytes=1)
    move = plan(machine, seen(owners=PROVISIONED, placement=placement(small)))
    assert isinstance(move, Wait)
    assert move.reason == "InsufficientResources"
    assert "r/a: needs" in move.message


@pytest.mark.parametrize(
    "world, host",
    [
        pytest.param({"claim_host_online": False}, "b", id="the claimed host is down"),
        pytest.param({"failure": TaskFailure(errors.StorageFull("x"), 2, 0.0)}, "b", id="full"),
        pytest.param({"guest": "theirs"}, "a", id="the VMID is taken"),
    ],
)
def test_another_vmid_is_reserved_where_the_first_cannot_be_used(
    world: dict[str, Any], host: str
) -> None:
    if world.get("guest"):
        world = {"guest": guest(marked=False, ours=False)}
    other = replace(HOST, key=HostKey("r", "b"), cpus=4)
    template = replace(TEMPLATE, template=replace(TEMPLATE.template, shared=True))
    found = placement(HOST, other)
    assert found.input
    shared = replace(found.input, templates=(template.template,))
    found = replace(found, input=shared, templates=(template,))
    move = plan(obj(), seen(owners=PROVISIONED, placement=found, **world))
    assert isinstance(move, ReserveVMID)
    assert move.claim.host == host
    assert move.claim.stale_clones == (() if "guest" in world else ("r/101",))


def test_the_first_configuration_write_is_complete() -> None:
    move = step(plan(obj(num_cores=4, tags=("x",)), seen(guest=guest(marked=False), **READY)))
    assert isinstance(move, Configure)
    assert move.digest == "d"
    assert {"cores", "net0", "ide2", "smbios1", "tags", "agent"} <= set(move.changes)
    assert move.changes["tags"] == f"moxwell;{MARK.tag};{MARK.cluster_tag};{BOOTING};x"


def test_bootstrap_data_is_never_printed() -> None:
    world = seen(task_running=True, iso_exists=False, bootstrap=BootstrapData(b"token"))
    assert "token" not in repr(plan(obj(), world))
    assert "token" not in repr(world)


@pytest.mark.parametrize(
    "machine, world, truth, provisioned",
    [
        pytest.param(obj(), seen(), "False", False, id="creating"),
        pytest.param(
            obj(provider_id=NAMED),
            seen(guest=guest("running"), bootstrapped=True),
            "True",
            True,
            id="running",
        ),
        pytest.param(
            obj(provider_id=NAMED),
            seen(region=UNREACHABLE),
            "Unknown",
            False,
            id="unreachable",
        ),
    ],
)
def test_status(
    machine: ProxmoxMachine, world: ObservedProxmoxMachine, truth: str, provisioned: bool
) -> None:
    status = describe(machine, world, plan(machine, world))
    assert next(c["status"] for c in status["conditions"] if c["type"] == "Ready") == truth
    assert ("initialization" in status) == provisioned


def test_provisioned_never_changes_back() -> None:
    stopped = seen(guest=guest("stopped", BOOTING))
    machine = obj(provider_id=NAMED)
    assert "initialization" not in describe(machine, stopped, Wait("Stopped"))
    status = MachineStatus(initialization=MachineInitialization(infrastructure_provisioned=True))
    known = structs.replace(stopped, machine=structs.replace(MACHINE, status=status))
    assert is_provisioned(machine, known)
    assert describe(machine, known, Wait("Stopped"))["initialization"] == {"provisioned": True}


def test_what_cannot_be_observed_is_left_out_of_the_status() -> None:
    machine = obj(provider_id=NAMED)
    silent = describe(machine, seen(region=UNREACHABLE), Wait("RegionUnreachable"))
    assert set(silent) == {"conditions", "nextMove"}
    assert "addresses" not in describe(machine, seen(), Wait("Vanished"))
    assert "addresses" not in describe(machine, seen(guest=guest()), Wait("Stopped"))


# ---- what was applied


LEGACY = LastApplied(tags=("a",), hardware_hash="h")


def test_what_an_earlier_version_kept_in_the_status_is_moved_to_the_claim() -> None:
    status = ProxmoxMachineStatus(applied=LastApplied(tags=("a",)), hardware="h")
    old = structs.replace(obj(provider_id=NAMED), status=status)
    assert legacy_applied(old) == LEGACY
    world = seen(legacy_applied=LEGACY, region=UNREACHABLE)
    move = plan(old, world)
    assert move == RecordApplied(MachineVersion.of(old), LEGACY)
    assert move.patch()["spec"]["claim"]["applied"] == {
        "tags": ("a",),
        "firewallGroups": None,
        "disks": None,
        "haGroup": None,
        "hardwareHash": "h",
    }
    described = describe(old, structs.replace(world, region=MachineRegion()), move)
    assert (described["applied"], described["hardware"]) == (None, None)


def test_it_is_moved_once() -> None:
    moved = obj(claim=structs.replace(CLAIM, applied=LastApplied()), provider_id=NAMED)
    assert plan(moved, seen(legacy_applied=LEGACY, guest=guest("running"))) == Done()
    assert legacy_applied(obj()) is None


def test_a_setting_is_recorded_before_it_is_applied() -> None:
    machine = obj(changes="InPlace", tags=("x",))
    move = plan(machine, seen(guest=guest(marked=False), **READY))
    assert move == RecordApplied(MachineVersion.of(machine), LastApplied(tags=("x",)))


def test_next_move_names_the_step() -> None:
    assert name_of(plan(obj(), seen())) == "Clone"
    assert name_of(Wait("X")) == "wait: X"
    assert name_of(ForgetStaleClone(MachineVersion.of(obj()), ())) == "ForgetStaleClone"
    assert name_of(Done()) == ""


class SimulatedGuest:
    """A simulated guest that executes the steps of the plan."""

    def __init__(self, start: MachineGuest | None, iso: bool, named: bool, deleting: bool) -> None:
        self.guest, self.iso, self.named, self.deleting = start, iso, named, deleting

    def object(self) -> ProxmoxMachine:
        return obj(self.deleting, provider_id=NAMED if self.named else "")

    def observe(self) -> ObservedProxmoxMachine:
        return seen(
            guest=self.guest,
            vmid_free=self.guest is None,
            iso_exists=self.iso,
            bootstrap=BootstrapData(b"x"),
            bootstrapped=True,
            machine=NODE,
        )

    def apply(self, move: Move) -> None:
        match move.step if isinstance(move, TakeStep) else move:
            case Clone():
                self.guest = guest(marked=False)
            case UploadIso():
                self.iso = True
            case DeleteVolume():
                self.iso = False
            case Configure(changes={"tags": tags}):
                was = self.guest
                assert was is not None
                booting = [t for t in tags.split(";") if t == BOOTING]
                self.guest = guest(was.seen.status, *booting)
            case Start():
                self.guest = guest("running", *([BOOTING] if self._booting else []))
            case SetProviderID():
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
def test_it_terminates_from_any_state_of_creation(
    start: MachineGuest | None, iso: bool, deleting: bool
) -> None:
    world = SimulatedGuest(start, iso, named=False, deleting=deleting)
    for _ in range(12):
        move = plan(world.object(), world.observe())
        if move == Done():
            assert (world.guest is None) == deleting
            assert not world.iso
            return
        assert not isinstance(move, Wait), move
        world.apply(move)
    raise AssertionError("did not terminate")


WARM = {WARM_GUEST_OF: "default"}
HELD = WARM | {RESERVED_FOR: "uid"}


@pytest.mark.parametrize(
    "machine, scaled, deleted",
    [
        pytest.param(obj(notes=WARM), False, True, id="no autoscaler"),
        pytest.param(obj(notes=WARM), True, False, id="an autoscaler"),
        pytest.param(obj(notes=HELD), False, False, id="reserved by a launch"),
        pytest.param(obj(notes=WARM, provider_id=NAMED), False, False, id="handed over"),
        pytest.param(obj(), False, False, id="not warm"),
    ],
)
def test_a_warm_guest_that_no_launch_will_take_is_deleted(
    machine: ProxmoxMachine, scaled: bool, deleted: bool
) -> None:
    move = plan(machine, seen(machine=None, guest=guest(), scaled=scaled))
    assert isinstance(move, DeleteWarmGuest) is deleted
