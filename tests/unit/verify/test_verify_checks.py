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
from moxwell.api.infra.mac_address import choose_mac
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import IPAddress, IPAddressClaim, PoolSpec
from moxwell.pve.endpoints.ha import HaResource, HaRule
from moxwell.pve.guests import GuestConfig
from moxwell.pve.model import ObservedGuest, ObservedHost
from moxwell.pve.ownership import Mark
from moxwell.pve.steps import iso_name
from moxwell.runtime.key import Key
from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.verify.findings import Finding
from moxwell.verify.model import (
    Observation,
    ObservedRegion,
    ObservedTenant,
    ObservedTenantNode,
    StoredVolume,
    Validity,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
UID = "6a0e3f1c-0000-4000-8000-00000000000a"
MARK = Mark(UID)
BOUND = Mark(UID, "t/c1")
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
ISO = f"local:iso/{iso_name(BOUND, 'bootstrap-100')}"
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


def guest(vmid: int = 100, **more: Any) -> ObservedGuest:
    given: dict[str, Any] = {"host": "pve1", "name": "m1", "status": "running"}
    return ObservedGuest(vmid=vmid, **{**given, "tags": ("moxwell", MARK.tag), **more})


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


def valid(since: int, until: int) -> Validity:
    """In days from now."""
    return Validity(NOW + timedelta(days=since), NOW + timedelta(days=until))


REGION = ObservedRegion(
    "north",
    hosts={"pve1": ObservedHost("pve1", True), "pve2": ObservedHost("pve2", True)},
    guests={100: guest(), 201: guest(201, name="precious", tags=())},
    configs={100: GuestConfig(CONFIG)},
    images=(
        StoredVolume("pve1", "ceph", "ceph:vm-100-disk-0", 100, True),
        StoredVolume("pve1", "ceph", "ceph:vm-9999-pvc-1", 9999, True),
    ),
    clocks={"pve1": 0.4},
    certificates={"pve1": valid(-65, 300)},
)
INSIDE = ObservedTenant(
    nodes=(ObservedTenantNode("m1", "proxmox://north/100"),),
    volumes=(volume("pv1", "north//ceph/vm-9999-pvc-1"),),
    certificates={"client": valid(-65, 300)},
)
WORLD = Observation(
    now=NOW,
    regions={"north": REGION},
    tenant_clusters={Key("t", "c1"): INSIDE},
    clusters=(
        made(
            Cluster,
            "c1",
            spec={"infrastructureRef": {"apiGroup": "i", "kind": "ProxmoxCluster", "name": "c1"}},
        ),
    ),
    proxmox_clusters=(
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
    capi_machines=(owner(),),
    machines=(machine(),),
    claims=(claim(),),
    addresses=(address("a1", "10.0.0.10"),),
    pools={
        ("InClusterIPPool", "t", "nodes"): PoolSpec(addresses=("10.0.0.10-10.0.0.20",), prefix=24)
    },
)


def region(**change: Any) -> Observation:
    return replace(WORLD, regions={"north": replace(REGION, **change)})


def inside(**change: Any) -> Observation:
    return replace(WORLD, tenant_clusters={Key("t", "c1"): replace(INSIDE, **change)})


def with_guest(*more: ObservedGuest) -> Observation:
    return region(guests={**REGION.guests, **{g.vmid: g for g in more}})


def with_config(**change: str) -> Observation:
    return region(configs={100: GuestConfig({**CONFIG, **change})})


def with_machine(**spec: Any) -> Observation:
    return replace(WORLD, machines=(machine(**spec),))


def bad(world: Observation) -> set[str]:
    """The names of everything that is not as it should be."""
    return {f.check for f in verify.run_checks(world) if f.level != "ok"}


OTHER = Mark("7b0e3f1c-0000-4000-8000-00000000000b")
THIRD = GuestConfig({**CONFIG, "description": OTHER.line, "tags": OTHER.tags()})
CARRIER = GuestConfig(
    {
        "description": OTHER.line,
        "tags": f"{OTHER.tags()};moxwell-csi-shell",
        "scsi1": "ceph:vm-9999-pvc-1,backup=0",
    }
)
TABLE: dict[str, tuple[Observation, set[str]]] = {
    "everything agrees": (WORLD, set()),
    "a stranger's guest is nobody's business": (with_guest(guest(300, tags=("web",))), set()),
    "a guest whose object is gone": (
        replace(
            WORLD,
            machines=(),
            capi_machines=(),
            claims=(),
            addresses=(),
            groups=(),
            tenant_clusters={},
        ),
        {"GuestWithoutOwner", "OrphanedVolume"},
    ),
    "a guest that was kept on purpose": (
        with_guest(guest(101, tags=("moxwell", OTHER.tag, "moxwell-kept"))),
        {"RetainedGuest"},
    ),
    "two guests with one mark": (with_guest(guest(101, host="pve2")), {"DuplicateGuest"}),
    "two machines with one id": (
        replace(WORLD, machines=(machine(), machine("m2")), capi_machines=(owner(), owner("m2"))),
        {"VMIDClaimedTwice", "ReplicasDiffer", "NodeMissing"},
    ),
    "a machine without its guest": (
        region(guests={}, configs={}, images=REGION.images[1:]),
        {"GuestMissing"},
    ),
    "a machine that is being made has no guest yet": (
        replace(
            region(guests={}, configs={}, images=REGION.images[1:]),
            machines=(machine(providerID=""),),
            capi_machines=(owner(status={}),),
            tenant_clusters={},
        ),
        {"OrphanedVolume"},
    ),
    "a guest that bears another's mark": (
        region(configs={100: THIRD}),
        {"GuestOwnedByOther", "GuestWithoutOwner"},
    ),
    "a guest that was stopped": (with_guest(guest(status="stopped")), {"GuestStopped"}),
    "a guest on a host that is down": (
        region(guests={100: guest(status="unknown")}, hosts={"pve1": ObservedHost("pve1", False)}),
        {"HostUnreachable"},
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
    "a bootstrap ISO without a machine": (
        region(isos=(StoredVolume("pve1", "local", f"local:iso/moxwell-seed-9-{OTHER.key}.iso"),)),
        {"OrphanedBootstrapISO"},
    ),
    "a bootstrap ISO of a machine that has booted": (
        region(isos=(StoredVolume("pve1", "local", ISO),)),
        {"BootstrapISONotDeleted"},
    ),
    "a bootstrap ISO of a machine that boots": (
        region(
            isos=(StoredVolume("pve1", "local", ISO),),
            guests={100: guest(tags=("moxwell", MARK.tag, "moxwell-booting"))},
        ),
        set(),
    ),
    "somebody's own ISO": (
        region(isos=(StoredVolume("pve1", "local", "local:iso/deb.iso"),)),
        set(),
    ),
    "HA for a guest that is gone": (region(ha=(HaResource(sid="vm:7"),)), {"OrphanedHAEntry"}),
    "an HA rule for a guest that is gone": (
        region(rules=(HaRule(rule="r", type="node-affinity", resources="vm:100,vm:7"),)),
        {"OrphanedHAEntry"},
    ),
    "HA that a machine asks for and has not": (
        with_machine(highAvailability={}),
        {"HAEntryMissing"},
    ),
    "a guest outside its firewall group": (
        replace(
            region(applied_groups={100: frozenset()}, security_groups={"web": ""}),
            machines=(machine(firewallGroups=["web"]),),
        ),
        {"FirewallGroupNotApplied"},
    ),
    "a firewall group that is not there": (
        replace(
            region(applied_groups={100: frozenset({"web"})}),
            machines=(machine(firewallGroups=["web"]),),
        ),
        {"FirewallGroupMissing"},
    ),
    "a firewall group of a tenant that is gone": (
        region(security_groups={"mox-red": "moxwell-tenant=tenant-red", "own": "mine"}),
        {"OrphanedFirewallGroup"},
    ),
    "a firewall group of a tenant": (
        replace(
            region(security_groups={"mox-red": "moxwell-tenant=tenant-red"}),
            tenants=(made(Tenant, "red", status={"namespace": "tenant-red"}),),
        ),
        set(),
    ),
    "a disk of a guest that is gone": (
        region(images=(*REGION.images, StoredVolume("pve1", "ceph", "ceph:vm-77-disk-0", 77))),
        {"OrphanedDisk"},
    ),
    "a disk of ours that hangs on nothing": (
        region(images=(*REGION.images, StoredVolume("pve1", "ceph", "ceph:vm-100-disk-1", 100))),
        {"DiskNotAttached"},
    ),
    "a ProxmoxMachine without a Machine": (
        replace(WORLD, capi_machines=(), groups=()),
        {"MachineWithoutOwner", "NodeWithoutMachine"},
    ),
    "a Machine without a ProxmoxMachine": (
        replace(WORLD, capi_machines=(owner(), owner("m2", status={}))),
        {"ProxmoxMachineMissing", "ReplicasDiffer"},
    ),
    "a claim whose machine is gone": (
        replace(WORLD, claims=(claim(), claim("m0-net0-00-inet", "gone"))),
        {"OrphanedClaim"},
    ),
    "an address without a claim": (
        replace(WORLD, addresses=(*WORLD.addresses, address("a2", "10.0.0.11", "m0"))),
        {"OrphanedAddress"},
    ),
    "an address given twice": (
        replace(
            WORLD,
            addresses=(*WORLD.addresses, address("a2", "10.0.0.10", "c2")),
            claims=(claim(), claim("c2")),
        ),
        {"DuplicateAddress"},
    ),
    "an address that its pool lost": (
        replace(WORLD, addresses=(address("a1", "10.0.0.99"),)),
        {"AddressOutsidePool"},
    ),
    "a node that is gone": (inside(nodes=()), {"NodeMissing"}),
    "a node that is not ready": (
        inside(nodes=(ObservedTenantNode("m1", "proxmox://north/100", ready=False),)),
        {"NodeNotReady"},
    ),
    "a node with another's identity": (
        inside(nodes=(ObservedTenantNode("m1", "proxmox://north/101"),)),
        {"ProviderIDDiffers", "NodeWithoutMachine"},
    ),
    "a node that no machine is": (
        inside(nodes=(*INSIDE.nodes, ObservedTenantNode("m9", "proxmox://north/109"))),
        {"NodeWithoutMachine"},
    ),
    "two nodes of one machine": (
        inside(nodes=(*INSIDE.nodes, ObservedTenantNode("m9", "proxmox://north/100"))),
        {"DuplicateNode"},
    ),
    "a node of another cloud": (
        inside(nodes=(*INSIDE.nodes, ObservedTenantNode("x", "aws://1"))),
        set(),
    ),
    "a volume whose disk is gone": (region(images=REGION.images[:1]), {"VolumeMissing"}),
    "a disk whose volume is gone": (inside(volumes=()), {"OrphanedVolume"}),
    "a disk that is kept for its snapshots": (
        replace(
            region(
                guests={
                    **REGION.guests,
                    20_000: guest(20_000, tags=CARRIER.tags, status="stopped"),
                },
                configs={**REGION.configs, 20_000: CARRIER},
            ),
            tenant_clusters=inside(volumes=()).tenant_clusters,
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
        region(certificates={"pve1": valid(-362, 3)}),
        {"CertificateExpiring"},
    ),
    "a certificate of a week, new": (inside(certificates={"client": valid(0, 7)}), set()),
    "a certificate of a week that nobody renewed": (
        inside(certificates={"client": valid(-5, 2)}),
        {"CertificateExpiring"},
    ),
    "a certificate that has ended": (
        inside(certificates={"client": valid(-368, -3)}),
        {"CertificateExpired"},
    ),
    "a region that does not answer": (
        replace(WORLD, regions={"north": ObservedRegion("north", error="refused")}),
        {"RegionUnreachable"},
    ),
    "a storage that does not answer": (
        region(images=(), unlisted=("pve1/ceph",)),
        {"StorageUnreachable"},
    ),
    "a cluster that does not answer": (inside(error="refused"), {"ClusterUnreachable"}),
    "fewer machines than asked for": (
        replace(
            WORLD,
            capi_machines=(),
            machines=(),
            claims=(),
            addresses=(),
            regions={},
            tenant_clusters={},
        ),
        {"ReplicasDiffer"},
    ),
}


@pytest.mark.parametrize(("world", "said"), TABLE.values(), ids=TABLE)
def test_each_disagreement_has_its_name(world: Observation, said: set[str]) -> None:
    assert bad(world) == said


@pytest.mark.parametrize("world", [w for w, _ in TABLE.values()], ids=TABLE)
def test_everything_wrong_says_what_to_do(world: Observation) -> None:
    for finding in verify.run_checks(world):
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

    async def look() -> Observation:
        return next(worlds)

    async def story() -> dict[str, Any]:
        return await verify.report(look, LoopClock())

    report = run_virtual(story())
    assert report["exitCode"] == 0
    assert report["counts"]["wrong"] == 0


PARTS = ("HA entries", "firewall groups", "clocks", "certificates")


@pytest.mark.parametrize("part", PARTS)
def test_what_may_not_be_read_is_said_and_nothing_concluded(part: str) -> None:
    region = ObservedRegion("r1", denied={part: "Permission check failed (/, Sys.Audit)"})
    found = verify.run_checks(
        Observation(now=datetime(2026, 1, 1, tzinfo=UTC), regions={"r1": region})
    )
    problems = [f for f in found if f.level != "ok"]
    assert [(f.level, f.check) for f in problems] == [("remark", "PermissionMissing")]
    assert "Sys.Audit" in problems[0].what
    assert verify.exit_code(found) == 0
