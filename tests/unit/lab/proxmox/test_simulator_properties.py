"""
Random requests, with invariants of the cluster checked after each.

Every disk has an existing owner (unless it was reassigned), VMIDs are unique, every volume in a
configuration exists, and the usage of a storage is the sum of its volumes.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moxwell.lab.proxmox.state import SimGuest, SimRegion, SimStorage
from support.simulator_cluster import SimulatedCluster, run_scenario

VMIDS = st.integers(100, 104)
NODES = st.sampled_from(["n1", "n2"])
STORAGES = st.sampled_from(["local", "shared", "thick"])
SLOTS = st.sampled_from(["scsi0", "scsi1", "virtio0"])


@dataclass(frozen=True)
class Operation:
    """One request; ``path`` may name its guest's node as {node}."""

    method: str
    path: str
    params: dict[str, Any] = field(default_factory=dict)


def create(vmid: int, node: str, storage: str, slot: str) -> Operation:
    form = {"vmid": vmid, "memory": 64, slot: f"{storage}:1"}
    return Operation("POST", f"/nodes/{node}/qemu", form)


def on(vmid: int, method: str, rest: str, **params: Any) -> Operation:
    return Operation(method, f"/nodes/{{node}}/qemu/{vmid}{rest}", params)


OPERATIONS = st.one_of(
    st.builds(create, VMIDS, NODES, STORAGES, SLOTS),
    st.builds(lambda v, n, f: on(v, "POST", "/clone", newid=n, full=f), VMIDS, VMIDS,
              st.sampled_from([0, 1])),
    st.builds(lambda v: on(v, "DELETE", "", purge=1), VMIDS),
    st.builds(lambda v: on(v, "POST", "/template"), VMIDS),
    st.builds(lambda v: on(v, "POST", "/status/start"), VMIDS),
    st.builds(lambda v: on(v, "POST", "/status/stop"), VMIDS),
    st.builds(lambda v, s, p: on(v, "PUT", "/config", **{p: f"{s}:1"}), VMIDS, STORAGES, SLOTS),
    st.builds(lambda v, p: on(v, "PUT", "/config", delete=p), VMIDS,
              st.sampled_from(["scsi0", "scsi1", "virtio0", "unused0", "unused1"])),
    st.builds(lambda v, p: on(v, "PUT", "/resize", disk=p, size="+1G"), VMIDS, SLOTS),
    st.builds(lambda v, p, s: on(v, "POST", "/move_disk", disk=p, storage=s), VMIDS, SLOTS,
              STORAGES),
    st.builds(lambda v: on(v, "POST", "/snapshot", snapname="s1"), VMIDS),
    st.builds(lambda v: on(v, "DELETE", "/snapshot/s1"), VMIDS),
    st.builds(lambda v, n: on(v, "POST", "/migrate", target=n), VMIDS, NODES),
)  # fmt: skip


async def perform(sim: SimulatedCluster, operation: Operation) -> None:
    """Send a request to the node of its guest and wait for its task; errors are expected."""
    parts = operation.path.split("/")
    vmid = int(parts[4]) if len(parts) > 4 else 0
    guest = sim.region.guests.get(vmid)
    node = guest.node if guest else "n1"
    answer = await sim.send(operation.method, operation.path.format(node=node), **operation.params)
    data = answer.json().get("data") if answer.body else None
    assert answer.status in {200, 400, 500}, answer
    if isinstance(data, str) and data.startswith("UPID:"):
        await sim.engine.runtimes["r"].workers.wait(data)


def named_volumes(guest: SimGuest) -> set[str]:
    """Every volume id in a guest's configuration, pending changes and snapshots."""
    texts = [*guest.conf.items(), *guest.pending.items()]
    for snapshot in guest.snapshots.values():
        texts += snapshot.conf.items()
    drives = ("scsi", "virtio", "unused", "ide", "sata")
    found = {str(v).split(",")[0] for k, v in texts if k.startswith(drives)}
    return {v for v in found if ":" in v}


def volumes(storage: SimStorage) -> dict[str, int | None]:
    return {
        f"{storage.name}:{name}": volume.vmid
        for volumes in storage.volumes.values()
        for name, volume in volumes.items()
        if volume.content == "images"
    }


def check(region: SimRegion) -> None:
    there: dict[str, int | None] = {}
    for storage in region.storages.values():
        there |= volumes(storage)
        for node in region.hosts:
            used = sum(v.used for v in storage.volumes_on(node).values())
            assert storage.used(node) == used
            assert 0 <= used <= storage.capacity
    named = {vmid: named_volumes(guest) for vmid, guest in region.guests.items()}
    for volid, owner in there.items():
        assert owner in region.guests, f"{volid} has no owner"
        assert volid in named[owner], f"{volid} is not in the configuration of {owner}"
    for vmid, volids in named.items():
        assert volids <= set(there), f"guest {vmid} names what is not there"
    assert all(vmid == guest.vmid for vmid, guest in region.guests.items())
    assert all(not guest.lock for guest in region.guests.values())


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(OPERATIONS, min_size=1, max_size=12))
def test_invariants_hold_after_random_operations(operations: list[Operation]) -> None:
    async def scenario(sim: SimulatedCluster) -> None:
        for operation in operations:
            await perform(sim, operation)
            check(sim.region)

    run_scenario(scenario)
