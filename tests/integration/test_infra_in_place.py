"""Taken out of the object, taken off the guest: tags, rules, HA's care, and disks if allowed."""

import asyncio
from typing import Any

import pytest

from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.pve.client import PveWriter
from moxwell.pve.switchable_transport import SwitchableTransport
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine
from moxwell.testing.two_regions import Estate, applied, is_true, message, ready, reason, running

BOOT = {"bootVolume": {"disk": "scsi0", "sizeGb": 20}}
EXTRA = [{"disk": "scsi1", "sizeGb": 5}]
REGIONS = [pytest.param("north", id="on 8.4"), pytest.param("south", id="on 9.2")]


async def made(estate: Estate, region: str, **spec: Any) -> tuple[ProxmoxMachine, Any]:
    for group in ("kube", "web"):
        estate.region(region).firewall.groups[group] = {"rules": []}
    await apply_cluster(estate, region=region)
    await apply_machine(estate, "m", templateID=9000, changes="InPlace", **spec)
    machine = await estate.until("m", lambda m: ready(m) and applied(m).hardware_hash != "")
    return machine, estate.region(region).guests[machine.spec.virtual_machine_id or 0]


async def say(estate: Estate, **spec: Any) -> None:
    await estate.kube.merge(ProxmoxMachine, "m", {"spec": spec}, "default")


def writes(estate: Estate, region: str) -> int:
    return sum(method != "GET" for method, _ in estate.sent(region))


@pytest.mark.parametrize("region", REGIONS)
def test_what_is_taken_out_leaves_and_what_is_theirs_stays(region: str) -> None:
    async def main() -> None:
        async with running(region) as (estate, _):
            asked = {"tags": ["a", "b"], "firewallGroups": ["kube", "web"]}
            _, guest = await made(estate, region, **asked, highAvailability={})
            guest.conf["tags"] += ";theirs"
            guest.firewall.rules.append({"type": "in", "action": "ACCEPT", "enable": 1})
            await say(estate, tags=["b"], firewallGroups=["web"], highAvailability=None)
            await asyncio.sleep(60)
            assert {"a", "b", "theirs"} & set(guest.conf["tags"].split(";")) == {"b", "theirs"}
            assert [r["action"] for r in guest.firewall.rules] == ["web", "ACCEPT"]
            assert estate.region(region).ha.resources == {}
            assert guest.running
            sent = writes(estate, region)
            await asyncio.sleep(1200)
            assert writes(estate, region) == sent
            found = applied(await estate.machine("m"))
            assert (found.tags, found.firewall_groups) == (("b",), ("web",))

    run_virtual(main())


def test_a_firewall_group_that_is_not_there_is_told_until_it_is() -> None:
    async def main() -> None:
        async with running("north") as (estate, _):
            _, guest = await made(estate, "north", firewallGroups=["web"])
            await say(estate, firewallGroups=["web", "late"])
            told = await estate.until(
                "m", lambda m: reason(m, "UpToDate") == "FirewallGroupNotFound"
            )
            assert "no firewall group late" in message(told, "UpToDate")
            assert is_true(told, "Ready")
            estate.region("north").firewall.groups["late"] = {"rules": []}
            await estate.until("m", lambda m: is_true(m, "UpToDate"))
            assert sorted(r["action"] for r in guest.firewall.rules) == ["late", "web"]

    run_virtual(main())


@pytest.mark.parametrize("region", REGIONS)
def test_a_disk_is_kept_until_the_object_says_delete(region: str) -> None:
    async def main() -> None:
        async with running(region) as (estate, _):
            _, guest = await made(estate, region, disks={**BOOT, "extra": EXTRA})
            volume = guest.conf["scsi1"].partition(",")[0]
            before = len(estate.volumes(region))
            await say(estate, disks={**BOOT, "extra": []})
            told = await estate.until("m", lambda m: reason(m, "UpToDate") == "DiskKept")
            assert volume in message(told, "UpToDate")
            assert is_true(told, "Ready")
            await asyncio.sleep(3600)
            assert guest.conf["scsi1"].startswith(volume)
            await say(estate, disks={**BOOT, "extra": [], "whenRemoved": "Delete"})
            await estate.until("m", lambda m: is_true(m, "UpToDate"))
            assert "scsi1" not in guest.conf
            assert not any(key.startswith("unused") for key in guest.conf)
            assert len(estate.volumes(region)) == before - 1
            assert applied(await estate.machine("m")).disks == ()

    run_virtual(main())


def test_a_kept_disk_that_a_person_removes_is_not_told_any_more() -> None:
    async def main() -> None:
        async with running("north") as (estate, _):
            _, guest = await made(estate, "north", disks={**BOOT, "extra": EXTRA})
            await say(estate, disks={**BOOT, "extra": []})
            await estate.until("m", lambda m: reason(m, "UpToDate") == "DiskKept")
            pve = PveWriter(SwitchableTransport(estate.transports["north"]))
            await pve.qemu.unlink(guest.node, guest.vmid, ["scsi1"], force=True)
            await estate.until("m", lambda m: is_true(m, "UpToDate"), 1500)

    run_virtual(main())


def test_a_volume_of_somebody_else_in_the_slot_is_neither_grown_nor_removed() -> None:
    async def main() -> None:
        async with running("north") as (estate, _):
            _, guest = await made(estate, "north", disks=BOOT)
            pve = PveWriter(SwitchableTransport(estate.transports["north"]))
            name = "vm-9999-pvc-a"
            await pve.storage.allocate(guest.node, "lvm", vmid=9999, filename=name, size="1G")
            await pve.qemu.configure(guest.node, guest.vmid, {"scsi1": f"lvm:{name}"})
            await say(estate, disks={**BOOT, "extra": EXTRA})
            told = await estate.until("m", lambda m: reason(m, "UpToDate") == "SlotTaken")
            assert name in message(told, "UpToDate")
            await say(estate, disks={**BOOT, "extra": [], "whenRemoved": "Delete"})
            await estate.until("m", lambda m: is_true(m, "UpToDate"))
            assert guest.conf["scsi1"].startswith(f"lvm:{name}")
            assert "size=1G" in guest.conf["scsi1"]

    run_virtual(main())


async def rules(estate: Estate, *names: str) -> PveWriter:
    """HA rules with somebody in each."""
    pve = PveWriter(SwitchableTransport(estate.transports["south"]))
    for n, name in enumerate(names):
        await pve.qemu.create("pve1", 300 + n, {"name": f"theirs-{n}", "memory": 512})
        await asyncio.sleep(5)
        await pve.ha.add_resource(f"vm:{300 + n}", state="stopped")
        await pve.ha.create_rule(name, "node-affinity", (f"vm:{300 + n}",), nodes="pve1,pve2")
    return pve


def test_another_rule_is_joined_in_place_and_the_former_one_left() -> None:
    async def main() -> None:
        async with running("south") as (estate, _):
            await rules(estate, "near", "far")
            machine, _ = await made(estate, "south", highAvailability={"group": "near"})
            sid, ha = f"vm:{machine.spec.virtual_machine_id}", estate.region("south").ha
            await say(estate, highAvailability={"group": "far"})
            await asyncio.sleep(60)
            assert ha.rules["near"]["resources"] == "vm:300"
            assert ha.rules["far"]["resources"].split(",") == ["vm:301", sid]
            await say(estate, highAvailability={"group": None})
            await asyncio.sleep(60)
            assert ha.rules["far"]["resources"] == "vm:301"
            assert sid in ha.resources

    run_virtual(main())


def test_the_last_in_a_rule_stays_and_goes_on_when_somebody_joins_it() -> None:
    async def main() -> None:
        async with running("south") as (estate, _):
            pve = await rules(estate, "near", "far")
            machine, _ = await made(estate, "south", highAvailability={"group": "near"})
            sid, ha = f"vm:{machine.spec.virtual_machine_id}", estate.region("south").ha
            await pve.ha.update_rule("near", "node-affinity", resources=(sid,))
            await say(estate, highAvailability={"group": "far"})
            told = await estate.until("m", lambda m: reason(m, "UpToDate") == "HARuleKept")
            assert "'near'" in message(told, "UpToDate")
            assert is_true(told, "Ready")
            await pve.ha.update_rule("near", "node-affinity", resources=(sid, "vm:300"))
            await estate.until("m", lambda m: is_true(m, "UpToDate"))
            assert sid in ha.rules["far"]["resources"].split(",")

    run_virtual(main())


def test_a_group_of_8_that_is_taken_out_is_left_and_written_once() -> None:
    async def main() -> None:
        async with running("north") as (estate, _):
            pve = PveWriter(SwitchableTransport(estate.transports["north"]))
            await pve.ha.create_group("near", nodes="pve1,pve2")
            machine, _ = await made(estate, "north", highAvailability={"group": "near"})
            sid, ha = f"vm:{machine.spec.virtual_machine_id}", estate.region("north").ha
            assert ha.resources[sid].options["group"] == "near"
            await say(estate, highAvailability={"group": None})
            await asyncio.sleep(60)
            assert "group" not in ha.resources[sid].options
            sent = writes(estate, "north")
            await asyncio.sleep(600)
            assert writes(estate, "north") == sent

    run_virtual(main())
