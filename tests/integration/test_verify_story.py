"""Each kind of disagreement, made by hand in the simulator, is named by ``moxwell verify``."""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Any

from moxwell import verify
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.ipam import IPAddress
from moxwell.api.kinds import Resource
from moxwell.embedded.controllermanager.resources import NODES
from moxwell.kube.client import Kube
from moxwell.lab.proxmox.state import SimHaResource
from moxwell.pve.effects import Owned
from moxwell.pve.transport import FileUpload
from moxwell.runtime.key import Key
from moxwell.testing.loop import run_virtual
from moxwell.testing.tenancy import SPACE, TenantWorld, app, tenancy
from moxwell.verify.collector import ObservationCollector

VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
Mischief = Callable[[TenantWorld, ProxmoxMachine], Awaitable[None]]
WRITTEN = tuple(
    name + suffix
    for name in ("moxwell-seed-77-abcdef.iso", "vm-778-disk-0", "vm-9999-pvc-x")
    for suffix in ("", ".raw", ".qcow2")
)


def at(w: TenantWorld, machine: ProxmoxMachine) -> Any:
    """The guest in the simulator."""
    return w.two_regions.region(machine.spec.region or "").guests[
        machine.spec.virtual_machine_id or 0
    ]


def pve(w: TenantWorld, machine: ProxmoxMachine) -> Any:
    vmid = machine.spec.virtual_machine_id or 0
    return w.program.regions[machine.spec.region or ""].writer(
        Owned("test", vmids=(vmid,), volumes=WRITTEN, names=("mox-gone",))
    )


async def inside(w: TenantWorld) -> Kube:
    found = await w.tenants.find(Key(SPACE, "c1"))
    assert found is not None
    return found


async def less_memory(w: TenantWorld, m: ProxmoxMachine) -> None:
    at(w, m).conf["memory"] = "512"


async def stopped(w: TenantWorld, m: ProxmoxMachine) -> None:
    w.two_regions.chaos(m.spec.region or "", "stop-guest", vmid=m.spec.virtual_machine_id)


async def locked(w: TenantWorld, m: ProxmoxMachine) -> None:
    w.two_regions.chaos(m.spec.region or "", "lock", vmid=m.spec.virtual_machine_id, lock="backup")


async def doubled(w: TenantWorld, m: ProxmoxMachine) -> None:
    region, twin = w.two_regions.region(m.spec.region or ""), copy.copy(at(w, m))
    twin.vmid, twin.running, twin.conf = 555, False, dict(at(w, m).conf)
    region.guests[555] = twin
    w.two_regions.engine.runtimes[region.name].mark_changed(555)


async def unowned(w: TenantWorld, m: ProxmoxMachine) -> None:
    await doubled(w, m)
    twin = w.two_regions.region(m.spec.region or "").guests[555]
    twin.conf["description"] = "moxwell-owner=11111111-2222-4333-8444-555555555555"
    twin.conf["tags"] = "moxwell;mox-11111111222243338444555555555555"


async def seed_left(w: TenantWorld, m: ProxmoxMachine) -> None:
    await pve(w, m).storage.upload(
        "pve1", "local", FileUpload.of("moxwell-seed-77-abcdef.iso", b"x")
    )


async def ha_left(w: TenantWorld, m: ProxmoxMachine) -> None:
    region = w.two_regions.region(m.spec.region or "")
    region.ha.resources["vm:777"] = SimHaResource("vm:777", "vm")


async def wall_left(w: TenantWorld, m: ProxmoxMachine) -> None:
    await pve(w, m).firewall.create_group("mox-gone", comment="moxwell-tenant=tenant-gone")


async def disk_left(w: TenantWorld, m: ProxmoxMachine) -> None:
    await pve(w, m).storage.allocate(
        "pve1", storage(m), vmid=778, filename="vm-778-disk-0" + suffix(m), size="1G"
    )


async def volume_left(w: TenantWorld, m: ProxmoxMachine) -> None:
    await pve(w, m).storage.allocate(
        "pve1", storage(m), vmid=9999, filename="vm-9999-pvc-x" + suffix(m), size="1G"
    )


def storage(m: ProxmoxMachine) -> str:
    return "ceph" if m.spec.region == "north" else "nfs"


def suffix(m: ProxmoxMachine) -> str:
    return "" if m.spec.region == "north" else ".raw"


async def volume_missing(w: TenantWorld, m: ProxmoxMachine) -> None:
    source = {"driver": "csi.moxwell.dev", "volumeHandle": "north//ceph/vm-9999-pvc-gone"}
    spec = {"csi": source, "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    meta = {"name": "pv-gone"}
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec}
    await (await inside(w)).create(body, VOLUMES)


async def node_missing(w: TenantWorld, m: ProxmoxMachine) -> None:
    await (await inside(w)).delete(NODES, m.name)


async def node_unknown(w: TenantWorld, m: ProxmoxMachine) -> None:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "stray"}}
    await (await inside(w)).create(body | {"spec": {"providerID": "proxmox://north/779"}}, NODES)


async def address_left(w: TenantWorld, m: ProxmoxMachine) -> None:
    found = (await w.kube.list(IPAddress.resource, SPACE)).items[0]
    spec = {**found["spec"], "claimRef": {"name": "nobody"}, "address": "10.20.4.200"}
    await w.kube.create(
        {
            "apiVersion": IPAddress.resource.api_version,
            "kind": "IPAddress",
            "metadata": {"name": "left", "namespace": SPACE},
            "spec": spec,
        },
        IPAddress.resource,
    )


async def address_doubled(w: TenantWorld, m: ProxmoxMachine) -> None:
    found = (await w.kube.list(IPAddress.resource, SPACE)).items[0]
    meta = {"name": "twice", "namespace": SPACE}
    head = {"apiVersion": IPAddress.resource.api_version, "kind": "IPAddress", "metadata": meta}
    await w.kube.create({**head, "spec": found["spec"]}, IPAddress.resource)


async def foreign(w: TenantWorld, m: ProxmoxMachine) -> None:
    at(w, m).conf["description"] = "mine"
    at(w, m).conf["tags"] = "other"


async def missing(w: TenantWorld, m: ProxmoxMachine) -> None:
    w.two_regions.chaos(m.spec.region or "", "delete-guest", vmid=m.spec.virtual_machine_id)


DONE: tuple[tuple[str, Mischief], ...] = (
    ("HardwareDiffers", less_memory),
    ("GuestStopped", stopped),
    ("GuestLocked", locked),
    ("DuplicateGuest", doubled),
    ("GuestWithoutOwner", unowned),
    ("OrphanedBootstrapISO", seed_left),
    ("OrphanedHAEntry", ha_left),
    ("OrphanedFirewallGroup", wall_left),
    ("OrphanedDisk", disk_left),
    ("OrphanedVolume", volume_left),
    ("VolumeMissing", volume_missing),
    ("NodeMissing", node_missing),
    ("NodeWithoutMachine", node_unknown),
    ("OrphanedAddress", address_left),
    ("DuplicateAddress", address_doubled),
    ("GuestOwnedByOther", foreign),
    ("GuestMissing", missing),
)


async def ripe(w: TenantWorld) -> ProxmoxMachine:
    """A cluster at rest, with nobody left who would mend anything; one of its machines."""
    await w.put(app("c1", nodeGroups={"a": {"replicas": 2}}))
    await w.until(lambda: w.ready("c1", 2))
    await asyncio.sleep(60)
    w.program.manager.stop()
    await asyncio.sleep(5)
    for task in w.two_regions.tasks:
        task.cancel()
    return (await w.guests("c1"))[0]


def test_each_kind_of_disagreement_is_named() -> None:
    async def story() -> None:
        async with tenancy() as w:
            machine = await ripe(w)
            collector = ObservationCollector(
                w.kube, w.program.regions, w.two_regions.clock, w.control_planes.dial
            )
            before = {(f.check, f.about) for f in verify.run_checks(await collector.observe())}
            assert {check for check, _ in before} == {"Agrees"}
            for check, happen in DONE:
                await happen(w, machine)
                await asyncio.sleep(15)  # until Proxmox's own list shows it
                after = {(f.check, f.about) for f in verify.run_checks(await collector.observe())}
                assert check in {name for name, _ in after - before}, check
                before = after
            assert (
                verify.exit_code(await verify.verify(collector.observe, w.two_regions.clock)) == 1
            )

    run_virtual(story())


def test_verify_changes_nothing_and_says_when_it_cannot_look() -> None:
    async def story() -> None:
        async with tenancy() as w:
            machine = await ripe(w)
            collector = ObservationCollector(
                w.kube, w.program.regions, w.two_regions.clock, w.control_planes.dial
            )
            for region in ("north", "south"):
                w.two_regions.sent(region).clear()
            found = await verify.verify(collector.observe, w.two_regions.clock)
            assert verify.exit_code(found) == 0
            asked = {method for r in ("north", "south") for method, _ in w.two_regions.sent(r)}
            assert asked == {"GET"}
            w.two_regions.fault(machine.spec.region or "", "status", status=503)
            found = await verify.verify(collector.observe, w.two_regions.clock)
            assert verify.exit_code(found) == 75
            assert "RegionUnreachable" in {f.check for f in found}

    run_virtual(story())
