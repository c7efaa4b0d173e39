"""The checks of ``moxwell verify``: a world in, the names of disagreements out."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from moxwell import verify
from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.machinesets import MachineDeployment
from moxwell.api.core.storage import PersistentVolume
from moxwell.api.cozystack import Tenant
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import IPAddress, IPAddressClaim, PoolSpec
from moxwell.bootstrap.network import choose_mac
from moxwell.pve.endpoints.ha import HaResource, HaRule
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import GuestSeen, HostSeen
from moxwell.pve.ownership import Mark
from moxwell.runtime.key import Key
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.verify.findings import Finding
from moxwell.verify.model import InsideWorld, NodeSeen, RegionWorld, Stored, World

NOW = datetime(2026, 3, 1, tzinfo=UTC)
UID = "6a0e3f1c-0000-4000-8000-00000000000a"
MARK = Mark(UID)
LABELS = {"cluster.x-k8s.io/cluster-name": "c1", "cluster.x-k8s.io/deployment-name": "c1-a"}
CONFIG = {
    "sockets": "1",
    "cores": "2",
    "memory": "2048",
    "agent": "1",
    "smbios1": f"uuid={UID}",
    "net0": f"virtio={choose_mac(UID, 'net0').upper()},bridge=vmbr0",
    "scsi0": "ceph:vm-100-disk-0,size=20G",
    "boot": "order=scsi0",
    "description": MARK.line,
    "tags": MARK.tags(),
}
SEED = f"local:iso/moxwell-seed-100-{MARK.key}.iso"
CLAIM = "m1-net0-00-inet"


def made(kind: Any, name: str, uid: str = "", **tree: Any) -> Any:
    meta = {"name": name, "namespace": "t", "uid": uid or name, **tree.pop("metadata", {})}
    return msgspec.convert({"metadata": meta, **tree}, kind, strict=False)


def machine(name: str = "m1", uid: str = UID, **spec: Any) -> ProxmoxMachine:
    owner = {"apiVersion": "x", "kind": "Machine", "name": name, "uid": f"machine-{name}"}
    given = {
        "region": "north",
        "virtualMachineID": 100,
        "providerID": "proxmox://north/100",
        "claim": {"host": "pve1", "uuid": uid, "zone": "north", "isoStorage": "local"},
        "numSockets": 1,
        "numCores": 2,
        "memoryMiB": 2048,
        "disks": {"bootVolume": {"sizeGb": 20}},
        "network": {"networkDevices": [{"name": "net0", "model": "virtio"}]},
    }
    meta = {"labels": LABELS, "ownerReferences": [owner]}
    return made(ProxmoxMachine, name, uid, metadata=meta, spec={**given, **spec})  # type: ignore[no-any-return]


def owner(name: str = "m1", **more: Any) -> Machine:
    spec = {
        "clusterName": "c1",
        "bootstrap": {},
        "infrastructureRef": {"apiGroup": "i", "kind": "ProxmoxMachine", "name": name},
        "providerID": "proxmox://north/100",
    }
    status = more.pop("status", {"nodeRef": {"name": name}})
    return made(  # type: ignore[no-any-return]
        Machine, name, f"machine-{name}", metadata={"labels": LABELS}, spec=spec, status=status
    )


def guest(vmid: int = 100, **more: Any) -> GuestSeen:
    given: dict[str, Any] = {"host": "pve1", "name": "m1", "status": "running"}
    return GuestSeen(vmid=vmid, **{**given, "tags": ("moxwell", MARK.tag), **more})


def address(name: str, text: str, claim: str = CLAIM, pool: str = "nodes") -> IPAddress:
    spec = {
        "claimRef": {"name": claim},
        "poolRef": {"apiGroup": "i", "kind": "InClusterIPPool", "name": pool},
        "address": text,
        "prefix": 24,
        "gateway": "10.0.0.1",
    }
    return made(IPAddress, name, spec=spec)  # type: ignore[no-any-return]


def claim(name: str = CLAIM, owner_uid: str = UID) -> IPAddressClaim:
    ref = {"apiVersion": "x", "kind": "ProxmoxMachine", "name": "m1", "uid": owner_uid}
    pool = {"apiGroup": "i", "kind": "InClusterIPPool", "name": "nodes"}
    return made(  # type: ignore[no-any-return]
        IPAddressClaim, name, metadata={"ownerReferences": [ref]}, spec={"poolRef": pool}
    )


def volume(name: str, handle: str) -> PersistentVolume:
    source = {"driver": "csi.moxwell.dev", "volumeHandle": handle}
    return made(PersistentVolume, name, spec={"csi": source})  # type: ignore[no-any-return]


REGION = RegionWorld(
    "north",
    hosts={"pve1": HostSeen("pve1", True), "pve2": HostSeen("pve2", True)},
    guests={100: guest(), 201: guest(201, name="precious", tags=())},
    configs={100: GuestConfig(CONFIG)},
    images=(
        Stored("pve1", "ceph", "ceph:vm-100-disk-0", 100, True),
        Stored("pve1", "ceph", "ceph:vm-9999-pvc-1", 9999, True),
    ),
    clocks={"pve1": 0.4},
    certificates={"pve1": NOW + timedelta(days=300)},
)
INSIDE = InsideWorld(
    nodes=(NodeSeen("m1", "proxmox://north/100"),),
    volumes=(volume("pv1", "north//ceph/vm-9999-pvc-1"),),
    certificates={"client": NOW + timedelta(days=300)},
)
WORLD = World(
    now=NOW,
    regions={"north": REGION},
    inside={Key("t", "c1"): INSIDE},
    clusters=(
        made(
            Cluster,
            "c1",
            spec={"infrastructureRef": {"apiGroup": "i", "kind": "ProxmoxCluster", "name": "c1"}},
        ),
    ),
    grounds=(
        made(
            ProxmoxCluster,
            "c1",
            spec={"zoneConfig": [{"zone": "north", "region": "north", "bridge": "vmbr0"}]},
        ),
    ),
    groups=(
        made(
            MachineDeployment,
            "c1-a",
            spec={
                "clusterName": "c1",
                "replicas": 1,
                "selector": {"matchLabels": {}},
                "template": {"spec": {"clusterName": "c1", "bootstrap": {}}},
            },
        ),
    ),
    owners=(owner(),),
    machines=(machine(),),
    claims=(claim(),),
    addresses=(address("a1", "10.0.0.10"),),
    pools={
        ("InClusterIPPool", "t", "nodes"): PoolSpec(addresses=("10.0.0.10-10.0.0.20",), prefix=24)
    },
)


def region(**change: Any) -> World:
    return replace(WORLD, regions={"north": replace(REGION, **change)})


def inside(**change: Any) -> World:
    return replace(WORLD, inside={Key("t", "c1"): replace(INSIDE, **change)})


def with_guest(*more: GuestSeen) -> World:
    return region(guests={**REGION.guests, **{g.vmid: g for g in more}})


def with_config(**change: str) -> World:
    return region(configs={100: GuestConfig({**CONFIG, **change})})


def with_machine(**spec: Any) -> World:
    return replace(WORLD, machines=(machine(**spec),))


def bad(world: World) -> set[str]:
    """The names of everything that is not as it should be."""
    return {f.check for f in verify.judge(world) if f.level != "ok"}


OTHER = Mark("7b0e3f1c-0000-4000-8000-00000000000b")
THIRD = GuestConfig({**CONFIG, "description": OTHER.line, "tags": OTHER.tags()})
CARRIER = GuestConfig(
    {
        "description": OTHER.line,
        "tags": f"{OTHER.tags()};moxwell-csi-shell",
        "scsi1": "ceph:vm-9999-pvc-1,backup=0",
    }
)
TABLE: dict[str, tuple[World, set[str]]] = {
    "everything agrees": (WORLD, set()),
    "a stranger's guest is nobody's business": (with_guest(guest(300, tags=("web",))), set()),
    "a guest whose object is gone": (
        replace(WORLD, machines=(), owners=(), claims=(), addresses=(), groups=(), inside={}),
        {"GuestWithoutOwner", "VolumeLeft"},
    ),
    "a guest that was kept on purpose": (
        with_guest(guest(101, tags=("moxwell", OTHER.tag, "moxwell-kept"))),
        {"GuestKept"},
    ),
    "two guests with one mark": (with_guest(guest(101, host="pve2")), {"GuestDoubled"}),
    "two machines with one id": (
        replace(WORLD, machines=(machine(), machine("m2")), owners=(owner(), owner("m2"))),
        {"ClaimedTwice", "CountDiffers", "NodeMissing"},
    ),
    "a machine without its guest": (
        region(guests={}, configs={}, images=REGION.images[1:]),
        {"GuestMissing"},
    ),
    "a machine that is being made has no guest yet": (
        replace(
            region(guests={}, configs={}, images=REGION.images[1:]),
            machines=(machine(providerID=""),),
            owners=(owner(status={}),),
            inside={},
        ),
        {"VolumeLeft"},
    ),
    "a guest that bears another's mark": (
        region(configs={100: THIRD}),
        {"GuestForeign", "GuestWithoutOwner"},
    ),
    "a guest that was stopped": (with_guest(guest(status="stopped")), {"GuestStopped"}),
    "a guest on a host that is down": (
        region(guests={100: guest(status="unknown")}, hosts={"pve1": HostSeen("pve1", False)}),
        {"HostSilent"},
    ),
    "a guest that Proxmox holds": (with_guest(guest(lock="backup")), {"GuestLocked"}),
    "fewer processors than asked for": (with_config(cores="1"), {"HardwareDiffers"}),
    "less memory than asked for": (with_config(memory="1024"), {"HardwareDiffers"}),
    "another identity": (with_config(smbios1="uuid=other"), {"HardwareDiffers"}),
    "a smaller disk": (with_config(scsi0="ceph:vm-100-disk-0,size=8G"), {"HardwareDiffers"}),
    "another bridge": (
        with_config(net0=CONFIG["net0"].replace("vmbr0", "vmbr9")),
        {"HardwareDiffers"},
    ),
    "a card that nobody asked for": (
        with_config(net1="virtio=BC:24:11:00:00:02,bridge=vmbr0"),
        {"HardwareDiffers"},
    ),
    "a seed disk of nobody": (
        region(isos=(Stored("pve1", "local", f"local:iso/moxwell-seed-9-{OTHER.key}.iso"),)),
        {"SeedLeft"},
    ),
    "a seed disk of a machine that has booted": (
        region(isos=(Stored("pve1", "local", SEED),)),
        {"SeedNotTaken"},
    ),
    "a seed disk of a machine that boots": (
        region(
            isos=(Stored("pve1", "local", SEED),),
            guests={100: guest(tags=("moxwell", MARK.tag, "moxwell-booting"))},
        ),
        set(),
    ),
    "somebody's own ISO": (region(isos=(Stored("pve1", "local", "local:iso/deb.iso"),)), set()),
    "HA for a guest that is gone": (region(ha=(HaResource(sid="vm:7"),)), {"HaLeft"}),
    "an HA rule for a guest that is gone": (
        region(rules=(HaRule(rule="r", type="node-affinity", resources="vm:100,vm:7"),)),
        {"HaLeft"},
    ),
    "HA that a machine asks for and has not": (with_machine(highAvailability={}), {"HaMissing"}),
    "a guest outside its firewall group": (
        replace(
            region(walls={100: frozenset()}, security_groups={"web": ""}),
            machines=(machine(firewallGroups=["web"]),),
        ),
        {"FirewallMissing"},
    ),
    "a firewall group that is not there": (
        replace(
            region(walls={100: frozenset({"web"})}), machines=(machine(firewallGroups=["web"]),)
        ),
        {"FirewallGroupMissing"},
    ),
    "a firewall group of a tenant that is gone": (
        region(security_groups={"mox-red": "moxwell-tenant=tenant-red", "own": "mine"}),
        {"FirewallGroupLeft"},
    ),
    "a firewall group of a tenant": (
        replace(
            region(security_groups={"mox-red": "moxwell-tenant=tenant-red"}),
            tenants=(made(Tenant, "red", status={"namespace": "tenant-red"}),),
        ),
        set(),
    ),
    "a disk of a guest that is gone": (
        region(images=(*REGION.images, Stored("pve1", "ceph", "ceph:vm-77-disk-0", 77))),
        {"DiskLeft"},
    ),
    "a disk of ours that hangs on nothing": (
        region(images=(*REGION.images, Stored("pve1", "ceph", "ceph:vm-100-disk-1", 100))),
        {"DiskLoose"},
    ),
    "a ProxmoxMachine without a Machine": (
        replace(WORLD, owners=(), groups=()),
        {"MachineWithoutOwner", "NodeWithoutMachine"},
    ),
    "a Machine without a ProxmoxMachine": (
        replace(WORLD, owners=(owner(), owner("m2", status={}))),
        {"MachineWithoutGuestObject", "CountDiffers"},
    ),
    "a claim whose machine is gone": (
        replace(WORLD, claims=(claim(), claim("m0-net0-00-inet", "gone"))),
        {"ClaimLeft"},
    ),
    "an address without a claim": (
        replace(WORLD, addresses=(*WORLD.addresses, address("a2", "10.0.0.11", "m0"))),
        {"AddressLeft"},
    ),
    "an address given twice": (
        replace(
            WORLD,
            addresses=(*WORLD.addresses, address("a2", "10.0.0.10", "c2")),
            claims=(claim(), claim("c2")),
        ),
        {"AddressDoubled"},
    ),
    "an address that its pool lost": (
        replace(WORLD, addresses=(address("a1", "10.0.0.99"),)),
        {"AddressOutsidePool"},
    ),
    "a node that is gone": (inside(nodes=()), {"NodeMissing"}),
    "a node that is not ready": (
        inside(nodes=(NodeSeen("m1", "proxmox://north/100", ready=False),)),
        {"NodeNotReady"},
    ),
    "a node with another's identity": (
        inside(nodes=(NodeSeen("m1", "proxmox://north/101"),)),
        {"NodeMistaken", "NodeWithoutMachine"},
    ),
    "a node that no machine is": (
        inside(nodes=(*INSIDE.nodes, NodeSeen("m9", "proxmox://north/109"))),
        {"NodeWithoutMachine"},
    ),
    "two nodes of one machine": (
        inside(nodes=(*INSIDE.nodes, NodeSeen("m9", "proxmox://north/100"))),
        {"NodeDoubled"},
    ),
    "a node of another cloud": (inside(nodes=(*INSIDE.nodes, NodeSeen("x", "aws://1"))), set()),
    "a volume whose disk is gone": (region(images=REGION.images[:1]), {"VolumeMissing"}),
    "a disk whose volume is gone": (inside(volumes=()), {"VolumeLeft"}),
    "a disk that is kept for its snapshots": (
        replace(
            region(
                guests={
                    **REGION.guests,
                    20_000: guest(20_000, tags=CARRIER.tags, status="stopped"),
                },
                configs={**REGION.configs, 20_000: CARRIER},
            ),
            inside=inside(volumes=()).inside,
        ),
        set(),
    ),
    "a volume of another driver": (
        inside(
            volumes=(
                *INSIDE.volumes,
                made(PersistentVolume, "x", spec={"csi": {"driver": "x", "volumeHandle": "y"}}),
            )
        ),
        set(),
    ),
    "a clock that is a little off": (region(clocks={"pve1": -7.0}), {"ClockSkewed"}),
    "a certificate that ends soon": (
        region(certificates={"pve1": NOW + timedelta(days=3)}),
        {"CertificateEnding"},
    ),
    "a certificate that has ended": (
        inside(certificates={"client": NOW - timedelta(days=3)}),
        {"CertificateExpired"},
    ),
    "a region that does not answer": (
        replace(WORLD, regions={"north": RegionWorld("north", error="refused")}),
        {"RegionSilent"},
    ),
    "a storage that does not answer": (
        region(images=(), unlisted=("pve1/ceph",)),
        {"StorageSilent"},
    ),
    "a cluster that does not answer": (inside(error="refused"), {"ClusterSilent"}),
    "fewer machines than asked for": (
        replace(WORLD, owners=(), machines=(), claims=(), addresses=(), regions={}, inside={}),
        {"CountDiffers"},
    ),
}


@pytest.mark.parametrize(("world", "said"), TABLE.values(), ids=TABLE)
def test_each_disagreement_has_its_name(world: World, said: set[str]) -> None:
    assert bad(world) == said


@pytest.mark.parametrize("world", [w for w, _ in TABLE.values()], ids=TABLE)
def test_everything_wrong_says_what_to_do(world: World) -> None:
    for finding in verify.judge(world):
        assert finding.what
        assert finding.about
        assert finding.do or finding.level in ("ok", "remark")


CODES = {
    "all agrees": ((), 0),
    "a remark": (("remark",), 0),
    "a disagreement": (("remark", "wrong"), 1),
    "no answer": (("unknown",), 75),
    "no answer here, a disagreement there": (("unknown", "wrong"), 1),
}


@pytest.mark.parametrize(("levels", "code"), CODES.values(), ids=CODES)
def test_exit_codes(levels: tuple[Any, ...], code: int) -> None:
    assert verify.exit_code(tuple(Finding(level, "X", "x", "x") for level in levels)) == code


def test_what_was_only_under_way_is_no_finding() -> None:
    worlds = iter([with_guest(guest(status="stopped")), WORLD])

    async def look() -> World:
        return next(worlds)

    async def story() -> dict[str, Any]:
        return await verify.report(look, LoopClock())

    report = run_virtual(story())
    assert report["exitCode"] == 0
    assert report["counts"]["wrong"] == 0


PARTS = ("HA entries", "firewall groups", "clocks", "certificates")


@pytest.mark.parametrize("part", PARTS)
def test_what_may_not_be_read_is_said_and_nothing_concluded(part: str) -> None:
    region = RegionWorld("r1", denied={part: "Permission check failed (/, Sys.Audit)"})
    found = verify.judge(World(now=datetime(2026, 1, 1, tzinfo=UTC), regions={"r1": region}))
    told = [f for f in found if f.level != "ok"]
    assert [(f.level, f.check) for f in told] == [("remark", "MayNotLook")]
    assert "Sys.Audit" in told[0].what
    assert verify.exit_code(found) == 0
