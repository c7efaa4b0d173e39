"""Random operations on guests and volumes, with invariants checked after each."""

from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moxwell.lab.proxmox.state import SimGuest, SimRegion
from moxwell.lab.proxmox.volumes.volume_index import volume_index
from support.simulator_session import SimulatorSession, run_session

IDS = st.sampled_from([100, 101, 102, 100, 101, 102, 103])
STORES = st.sampled_from(["local", "shared", "thin", "thick", "tank", "ceph"])
NODES = st.sampled_from(["n1", "n2"])
Operation = tuple[str, str, dict[str, Any]]


def _vm(vmid: int, rest: str = "") -> str:
    return f"/nodes/{{node}}/qemu/{vmid}{rest}"


OPERATIONS = st.one_of(
    st.builds(
        lambda v, s, n: ("POST", f"/nodes/{n}/qemu", {"vmid": str(v), "scsi0": f"{s}:1"}),
        IDS, STORES, NODES,
    ),
    st.builds(
        lambda v, t: ("POST", "/nodes/n1/lxc", {
            "vmid": str(v), "ostemplate": "shared:vztmpl/debian-12.tar.gz", "rootfs": f"{t}:1"}),
        IDS, st.sampled_from(["shared", "thin", "tank"]),
    ),
    st.builds(lambda v, n: ("POST", _vm(v, "/clone"), {"newid": str(n)}), IDS, IDS),
    st.builds(
        lambda v, n, s: ("POST", _vm(v, "/clone"), {"newid": str(n), "full": "1", "storage": s}),
        IDS, IDS, STORES,
    ),
    st.builds(lambda v: ("POST", _vm(v, "/template"), {}), IDS),
    st.builds(lambda v: ("DELETE", _vm(v), {"purge": "1"}), IDS),
    st.builds(lambda v, a: ("POST", _vm(v, f"/status/{a}"), {}), IDS,
              st.sampled_from(["start", "stop", "suspend", "resume", "reset"])),
    st.builds(lambda v, s: ("PUT", _vm(v, "/config"), {"scsi1": f"{s}:1"}), IDS, STORES),
    st.builds(lambda v, d: ("PUT", _vm(v, "/config"), {"delete": d}), IDS,
              st.sampled_from(["scsi0", "scsi1", "unused0", "scsi0,scsi1", "boot"])),
    st.builds(lambda v: ("PUT", _vm(v, "/resize"), {"disk": "scsi0", "size": "+1G"}), IDS),
    st.builds(
        lambda v, s, d: (
            "POST", _vm(v, "/move_disk"), {"disk": "scsi0", "storage": s, "delete": d}
        ),
        IDS, STORES, st.sampled_from(["0", "1"]),
    ),
    st.builds(
        lambda v, o: ("POST", _vm(v, "/move_disk"), {"disk": "scsi1", "target-vmid": str(o)}),
        IDS, IDS,
    ),
    st.builds(lambda v: ("POST", _vm(v, "/snapshot"), {"snapname": "one"}), IDS),
    st.builds(lambda v: ("POST", _vm(v, "/snapshot/one/rollback"), {}), IDS),
    st.builds(lambda v: ("DELETE", _vm(v, "/snapshot/one"), {}), IDS),
    st.builds(lambda v, n: ("POST", _vm(v, "/migrate"), {"target": n, "online": "1"}), IDS, NODES),
)  # fmt: skip


def named(guest: SimGuest) -> Iterator[str]:
    confs = [guest.conf, guest.pending, *(snap.conf for snap in guest.snapshots.values())]
    for conf in confs:
        for value in conf.values():
            text = str(value).partition(",")[0]
            if ":" in text and ("vm-" in text or "base-" in text or "subvol-" in text):
                yield text


def check(sim: SimulatorSession) -> None:
    region = sim.region
    volumes = list(_volumes(region))
    owners = {volid: vmid for volid, vmid, _ in volumes}
    for volid, vmid, _ in volumes:
        assert vmid in region.guests, f"{volid} has no owner"
        used = {v for g in region.guests.values() for v in named(g)}
        assert volid in used, f"{volid} is not in any configuration"
    for guest in region.guests.values():
        assert guest.lock in ("", "suspended"), f"{guest.vmid} is left locked"
        assert guest.node in region.hosts
        assert not (guest.template and guest.running)
        assert guest.running or not guest.live
        for volid in named(guest):
            assert volid in owners, f"{guest.vmid} names {volid}, which is not there"
    for storage in region.storages.values():
        for node in region.hosts:
            assert storage.used(node) <= storage.capacity
            index = volume_index(sim.engine.runtimes["r1"].module_data, storage, node)
            assert index.used == sum(v.used for v in storage.volumes_on(node).values())


def _volumes(region: SimRegion) -> Iterator[tuple[str, int | None, int]]:
    for storage in region.storages.values():
        for where in storage.volumes.values():
            for volume in where.values():
                assert volume.used >= 0
                if volume.content in ("images", "rootdir"):
                    yield f"{storage.name}:{volume.name}", volume.vmid, volume.size


async def perform(sim: SimulatorSession, operation: Operation) -> None:
    method, path, params = operation
    parts = path.split("/")
    guest = sim.region.guests.get(int(parts[4])) if len(parts) > 4 else None
    node = guest.node if guest is not None else "n1"
    answer = await sim.request(method, path.replace("{node}", node), params)
    assert answer.status in (200, 400, 500), answer
    if isinstance(answer.data, str) and answer.data.startswith("UPID:"):
        task = await sim.engine.runtimes["r1"].workers.wait(answer.data)
        assert task.exitstatus is not None


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(OPERATIONS, min_size=3, max_size=25))
def test_invariants_hold_after_random_operations(operations: list[Operation]) -> None:
    async def body(sim: SimulatorSession) -> None:
        for vmid, storage in ((100, "shared"), (101, "thin"), (102, "tank")):
            await sim.vm(vmid, scsi0=f"{storage}:1", scsi1=f"{storage}:1")
        for operation in operations:
            await perform(sim, operation)
            check(sim)

    run_session(body)
