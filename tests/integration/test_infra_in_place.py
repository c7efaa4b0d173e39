"""
Settings removed from the spec are removed from the guest: tags, rules, HA, and disks if allowed.
"""

import asyncio
from typing import Any

import pytest

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.controllers.infra.machine.quota import NAMESPACES
from moxwell.pve.client import PveWriter
from moxwell.pve.switchable_transport import SwitchableTransport
from moxwell.scheduling.quota import QUOTA
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine
from moxwell.testing.two_regions import (
    TwoRegions,
    applied,
    is_true,
    message,
    ready,
    reason,
    running,
)

BOOT = {"bootVolume": {"disk": "scsi0", "sizeGb": 20}}
EXTRA = [{"disk": "scsi1", "sizeGb": 5}]
REGIONS = [pytest.param("north", id="on 8.4"), pytest.param("south", id="on 9.2")]


async def create(env: TwoRegions, region: str, **spec: Any) -> tuple[ProxmoxMachine, Any]:
    for group in ("kube", "web"):
        env.region(region).firewall.groups[group] = {"rules": []}
    await apply_cluster(env, region=region)
    await apply_machine(env, "m", templateID=9000, changes="InPlace", **spec)
    machine = await env.until("m", lambda m: ready(m) and applied(m).hardware_hash != "")
    return machine, env.region(region).guests[machine.spec.virtual_machine_id or 0]


async def patch_spec(env: TwoRegions, **spec: Any) -> None:
    await env.kube.merge(ProxmoxMachine, "m", {"spec": spec}, "default")


def writes(env: TwoRegions, region: str) -> int:
    return sum(method != "GET" for method, _ in env.sent(region))


@pytest.mark.parametrize("region", REGIONS)
def test_removed_settings_are_removed_and_foreign_ones_stay(region: str) -> None:
    async def main() -> None:
        async with running(region) as (env, _):
            asked = {"tags": ["a", "b"], "firewallGroups": ["kube", "web"]}
            _, guest = await create(env, region, **asked, highAvailability={})
            guest.conf["tags"] += ";theirs"
            guest.firewall.rules.append({"type": "in", "action": "ACCEPT", "enable": 1})
            await patch_spec(env, tags=["b"], firewallGroups=["web"], highAvailability=None)
            await asyncio.sleep(60)
            assert {"a", "b", "theirs"} & set(guest.conf["tags"].split(";")) == {"b", "theirs"}
            assert [r["action"] for r in guest.firewall.rules] == ["web", "ACCEPT"]
            assert env.region(region).ha.resources == {}
            assert guest.running
            sent = writes(env, region)
            await asyncio.sleep(1200)
            assert writes(env, region) == sent
            found = applied(await env.machine("m"))
            assert (found.tags, found.firewall_groups) == (("b",), ("web",))

    run_virtual(main())


def test_a_security_group_moves_to_another_device() -> None:
    async def main() -> None:
        async with running("north") as (env, _):
            _, guest = await create(env, "north", firewallGroups=["kube", "web"])
            for groups in (["kube", "web@net0"], ["kube@net1"]):
                await patch_spec(env, firewallGroups=groups)
                await asyncio.sleep(60)
                machine = await env.machine("m")
                assert is_true(machine, "UpToDate"), message(machine, "UpToDate")
                found = [f"{r['action']}@{r.get('iface', '')}" for r in guest.firewall.rules]
                assert sorted(each.rstrip("@") for each in found) == groups

    run_virtual(main())


def test_a_missing_firewall_group_is_reported_until_it_exists() -> None:
    async def main() -> None:
        async with running("north") as (env, _):
            _, guest = await create(env, "north", firewallGroups=["web"])
            await patch_spec(env, firewallGroups=["web", "late"])
            machine = await env.until(
                "m", lambda m: reason(m, "UpToDate") == "FirewallGroupNotFound"
            )
            assert "no firewall group late" in message(machine, "UpToDate")
            assert is_true(machine, "Ready")
            env.region("north").firewall.groups["late"] = {"rules": []}
            await env.until("m", lambda m: is_true(m, "UpToDate"))
            assert sorted(r["action"] for r in guest.firewall.rules) == ["late", "web"]

    run_virtual(main())


@pytest.mark.parametrize("region", REGIONS)
def test_a_disk_is_kept_until_the_spec_allows_its_deletion(region: str) -> None:
    async def main() -> None:
        async with running(region) as (env, _):
            _, guest = await create(env, region, disks={**BOOT, "extra": EXTRA})
            volume = guest.conf["scsi1"].partition(",")[0]
            before = len(env.volumes(region))
            await patch_spec(env, disks={**BOOT, "extra": []})
            machine = await env.until("m", lambda m: reason(m, "UpToDate") == "DiskKept")
            assert volume in message(machine, "UpToDate")
            assert is_true(machine, "Ready")
            await asyncio.sleep(3600)
            assert guest.conf["scsi1"].startswith(volume)
            await patch_spec(env, disks={**BOOT, "extra": [], "whenRemoved": "Delete"})
            await env.until("m", lambda m: is_true(m, "UpToDate"))
            assert "scsi1" not in guest.conf
            assert not any(key.startswith("unused") for key in guest.conf)
            assert len(env.volumes(region)) == before - 1
            assert applied(await env.machine("m")).disks == ()

    run_virtual(main())


def test_a_kept_disk_that_is_removed_by_hand_is_no_longer_reported() -> None:
    async def main() -> None:
        async with running("north") as (env, _):
            _, guest = await create(env, "north", disks={**BOOT, "extra": EXTRA})
            await patch_spec(env, disks={**BOOT, "extra": []})
            await env.until("m", lambda m: reason(m, "UpToDate") == "DiskKept")
            where = f"/nodes/{guest.node}/qemu/{guest.vmid}/unlink"
            await env.transports["north"].request("PUT", where, {"idlist": "scsi1", "force": True})
            await env.until("m", lambda m: is_true(m, "UpToDate"), 1500)

    run_virtual(main())


def test_a_foreign_volume_in_the_slot_is_neither_resized_nor_removed() -> None:
    async def main() -> None:
        async with running("north") as (env, _):
            _, guest = await create(env, "north", disks=BOOT)
            pve = PveWriter(SwitchableTransport(env.transports["north"]))
            name = "vm-9999-pvc-a"
            await pve.storage.allocate(guest.node, "lvm", vmid=9999, filename=name, size="1G")
            await pve.qemu.configure(guest.node, guest.vmid, {"scsi1": f"lvm:{name}"})
            await patch_spec(env, disks={**BOOT, "extra": EXTRA})
            machine = await env.until("m", lambda m: reason(m, "UpToDate") == "SlotTaken")
            assert name in message(machine, "UpToDate")
            await patch_spec(env, disks={**BOOT, "extra": [], "whenRemoved": "Delete"})
            await env.until("m", lambda m: is_true(m, "UpToDate"))
            assert guest.conf["scsi1"].startswith(f"lvm:{name}")
            assert "size=1G" in guest.conf["scsi1"]

    run_virtual(main())


async def rules(env: TwoRegions, *names: str) -> PveWriter:
    """Create HA rules with another resource in each."""
    pve = PveWriter(SwitchableTransport(env.transports["south"]))
    for n, name in enumerate(names):
        await pve.qemu.create("pve1", 300 + n, {"name": f"theirs-{n}", "memory": 512})
        await asyncio.sleep(5)
        await pve.ha.add_resource(f"vm:{300 + n}", state="stopped")
        await pve.ha.create_rule(name, "node-affinity", (f"vm:{300 + n}",), nodes="pve1,pve2")
    return pve


def test_the_ha_rule_is_changed_in_place() -> None:
    async def main() -> None:
        async with running("south") as (env, _):
            await rules(env, "near", "far")
            machine, _ = await create(env, "south", highAvailability={"group": "near"})
            sid, ha = f"vm:{machine.spec.virtual_machine_id}", env.region("south").ha
            await patch_spec(env, highAvailability={"group": "far"})
            await asyncio.sleep(60)
            assert ha.rules["near"]["resources"] == "vm:300"
            assert set(ha.rules["far"]["resources"].split(",")) == {"vm:301", sid}
            await patch_spec(env, highAvailability={"group": None})
            await asyncio.sleep(60)
            assert ha.rules["far"]["resources"] == "vm:301"
            assert sid in ha.resources

    run_virtual(main())


def test_the_last_resource_of_a_rule_stays_until_another_joins() -> None:
    async def main() -> None:
        async with running("south") as (env, _):
            pve = await rules(env, "near", "far")
            machine, _ = await create(env, "south", highAvailability={"group": "near"})
            sid, ha = f"vm:{machine.spec.virtual_machine_id}", env.region("south").ha
            await pve.ha.update_rule("near", "node-affinity", resources=(sid,))
            await patch_spec(env, highAvailability={"group": "far"})
            machine = await env.until("m", lambda m: reason(m, "UpToDate") == "HARuleKept")
            assert "'near'" in message(machine, "UpToDate")
            assert is_true(machine, "Ready")
            await pve.ha.update_rule("near", "node-affinity", resources=(sid, "vm:300"))
            await env.until("m", lambda m: is_true(m, "UpToDate"))
            assert sid in ha.rules["far"]["resources"].split(",")

    run_virtual(main())


def test_an_ha_group_is_removed_in_one_write_on_8() -> None:
    async def main() -> None:
        async with running("north") as (env, _):
            pve = PveWriter(SwitchableTransport(env.transports["north"]))
            await pve.ha.create_group("near", nodes="pve1,pve2")
            machine, _ = await create(env, "north", highAvailability={"group": "near"})
            sid, ha = f"vm:{machine.spec.virtual_machine_id}", env.region("north").ha
            assert ha.resources[sid].options["group"] == "near"
            await patch_spec(env, highAvailability={"group": None})
            await asyncio.sleep(60)
            assert "group" not in ha.resources[sid].options
            sent = writes(env, "north")
            await asyncio.sleep(600)
            assert writes(env, "north") == sent

    run_virtual(main())


async def limit_cpus(env: TwoRegions, count: int) -> None:
    change = {"metadata": {"annotations": {QUOTA: f'{{"cpu": "{count}"}}'}}}
    await env.kube.merge(NAMESPACES, "default", change)


def test_a_larger_guest_waits_for_room_in_the_quota() -> None:
    async def main() -> None:
        async with running("north") as (env, _):
            _, guest = await create(env, "north", numCores=2, numSockets=1)
            await limit_cpus(env, 2)
            await patch_spec(env, numCores=4)
            found = await env.until("m", lambda m: reason(m, "UpToDate") == "QuotaExceeded")
            assert "cpu: 4 asked, 0 used by others, limit 2" in message(found, "UpToDate")
            assert is_true(found, "Ready")
            await asyncio.sleep(120)
            assert guest.conf["cores"] == 2
            await limit_cpus(env, 4)
            await env.until("m", lambda m: is_true(m, "UpToDate"))
            assert int({**guest.conf, **guest.pending}["cores"]) == 4

    run_virtual(main())
