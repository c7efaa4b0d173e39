"""Every step keeps its contract, on both releases, with no more rights than the documented role."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from moxwell.errors import Bug
from moxwell.lab.proxmox.state import SimAcl, SimToken, SimUser
from moxwell.pve import errors, steps
from moxwell.pve.endpoints.firewall import FirewallRule
from moxwell.pve.ownership import Foreign
from moxwell.pve.steps import GuestRef, Step, StorageOnHost
from moxwell.pve.tenant_access import TENANT_USER
from moxwell.pve.values import Blob
from moxwell.testing.loop import run_virtual
from moxwell.testing.pve import check_refusal, check_step
from moxwell.testing.small_region import OURS, THEIRS, SimStage

RELEASES = ("8.4.21", "9.2.11")
G = GuestRef("r1", "pve1", 100, OURS)
NEW = GuestRef("r1", "pve1", 300, OURS)
STORAGE = StorageOnHost("r1", "pve1", "shared")
ISO = steps.iso_name(OURS)
PVC = "shared:9999/vm-9999-pvc-a.raw"


def running(stage: SimStage) -> None:
    guest = stage.region.guests[100]
    guest.running, guest.live, guest.started = (
        True,
        dict(guest.conf),
        stage.engine.runtimes["r1"].now(),
    )


async def volume(stage: SimStage) -> None:
    await stage.pve.storage.allocate(
        "pve1", "shared", vmid=9999, filename="vm-9999-pvc-a.raw", size="1G"
    )


async def with_iso(stage: SimStage) -> None:
    await stage.settle(await UPLOAD.perform(stage.pve))


async def with_drive(stage: SimStage) -> None:
    await with_iso(stage)
    await steps.AttachIso(G, slot="ide2", volid=UPLOAD.volid).perform(stage.pve)


async def with_ha(stage: SimStage) -> None:
    await steps.RegisterHa(G, state="stopped").perform(stage.pve)


async def with_rule(stage: SimStage) -> None:
    await with_ha(stage)
    await stage.pve.ha.add_resource("vm:200", state="stopped")
    rule = stage.pve.ha.create_rule("near", "node-affinity", ("vm:100", "vm:200"), nodes="pve1")
    await rule


async def with_group(stage: SimStage) -> None:
    rules = (FirewallRule(type="group", action="kube", enable=1),)
    await steps.SetFirewall(G, options={"enable": True}, rules=rules).perform(stage.pve)


async def with_own_disk(stage: SimStage) -> None:
    await stage.settle(await steps.Configure(G, changes={"scsi1": "shared:2"}).perform(stage.pve))


def stale_clone(stage: SimStage) -> None:
    """Leave the rest of a clone whose host died."""
    stage.region.guests[100].conf = {"description": " qmclone temporary file"}


def administrator(stage: SimStage) -> None:
    for path in ("/", "/sdn", "/sdn/zones"):
        stage.region.access.acl.append(SimAcl(path, "user", "moxwell@pve", "Administrator"))


async def with_pool(stage: SimStage) -> None:
    administrator(stage)
    await stage.pve.pools.create("mox-a", comment="moxwell-tenant=a")


async def with_pools(stage: SimStage) -> None:
    """Two pools, one in the other; the guest is a member of a third."""
    administrator(stage)
    for name in ("theirs", "theirs/inner", "before"):
        await stage.pve.pools.create(name)
    await stage.pve.pools.update("before", vms=(100,))


async def with_tenant_vnet(stage: SimStage) -> None:
    await with_vnet(stage)
    await stage.pve.sdn.create_vnet("mxa", "lan", alias="moxwell-tenant=a")
    await stage.pve.sdn.create_subnet("mxa", "10.8.1.0/24")


async def with_token(stage: SimStage) -> None:
    await with_pool(stage)
    user = SimUser(TENANT_USER)
    user.tokens["tenant-a"] = SimToken("tenant-a", "secret", comment="moxwell-tenant=a")
    stage.region.access.users[TENANT_USER] = user
    row = SimAcl("/access/groups", "user", "moxwell@pve", "Administrator")
    stage.region.access.acl.append(row)


async def with_security_group(stage: SimStage) -> None:
    administrator(stage)
    await stage.pve.firewall.create_group("mox-a", comment="moxwell-tenant=a")
    await stage.pve.firewall.add_group_rule("mox-a", FirewallRule(type="in", action="DROP"))


async def with_vnet(stage: SimStage) -> None:
    administrator(stage)
    zone = {"zone": "lan", "type": "simple", "ipam": "pve", "dhcp": "dnsmasq"}
    await stage.transport.request("POST", "/cluster/sdn/zones", zone)
    await stage.pve.sdn.create_vnet("vips", "lan")
    await stage.pve.sdn.create_subnet("vips", "10.7.0.0/29", gateway="10.7.0.1")
    await stage.settle(await stage.pve.sdn.apply())


async def with_address(stage: SimStage) -> None:
    await with_vnet(stage)
    await stage.pve.sdn.reserve("vips", zone="lan", ip="10.7.0.2", mac=ADDRESS["mac"])


ADDRESS = {"region_name": "r1", "vnet": "vips", "zone": "lan", "ip": "10.7.0.2",
           "mac": "02:00:00:00:00:01"}  # fmt: skip
POOL = {"region_name": "r1", "pool": "mox-a", "comment": "moxwell-tenant=a"}
VNET: dict[str, Any] = {"region_name": "r1", "vnet": "mxa", "alias": "moxwell-tenant=a"}
SUBNET = steps.VnetSubnet(cidr="10.8.0.0/24", gateway="10.8.0.1")
TOKEN = steps.TenantToken(region="r1", name="tenant-a", pool="mox-a", comment="moxwell-tenant=a")
GROUP = {"region_name": "r1", "group": "mox-a", "comment": "moxwell-tenant=a"}
ACCEPT = FirewallRule(type="in", action="ACCEPT", enable=1, source="10.0.0.0/8")
UPLOAD = steps.UploadIso(storage=STORAGE, mark=OURS, filename=ISO, content=Blob(b"\0" * 4096))


@dataclass(frozen=True)
class Case:
    """A step, and the preparation that it needs."""

    step: Step
    arrange: Callable[[SimStage], Any] | None = None
    only: str = ""  # a release


CASES = [
    Case(steps.Clone(NEW, template=9000, template_host="pve1", name="new")),
    Case(steps.Clone(GuestRef("r1", "pve2", 301, OURS), template=9000, template_host="pve1",
                     name="there", full=True, storage="shared", pool="team")),
    Case(steps.CreateGuest(NEW, name="made", config={"memory": "512", "scsi0": "shared:1"})),
    Case(steps.MakeTemplate(G)),
    Case(steps.Migrate(G, target="pve2")),
    Case(steps.Destroy(G)),
    Case(steps.RemoveStaleClone(G), stale_clone),
    Case(steps.Start(G)),
    Case(steps.Shutdown(G, timeout_seconds=5, force=True), running),
    Case(steps.Stop(G), running),
    Case(steps.Configure(G, changes={"cores": "4", "memory": "2048", "name": "renamed",
                                     "net0": "virtio,bridge=vmbr0,tag=7",
                                     "tags": OURS.tags(["web"])}, delete=("agent",))),
    Case(steps.Configure(G, changes={"scsi1": "shared:2", "scsi2": "shared:3"})),
    Case(steps.ResizeDisk(G, slot="scsi0", size_gib=5)),
    Case(steps.AttachIso(G, slot="ide2", volid=UPLOAD.volid), with_iso),
    Case(steps.EjectIso(G, slot="ide2", volid=UPLOAD.volid), with_drive),
    Case(steps.RemoveDisk(G, slot="scsi1", volid="shared:100/vm-100-disk-1.raw"), with_own_disk),
    Case(steps.RegisterHa(G, state="stopped", max_restart=2)),
    Case(steps.RemoveHa(G), with_ha),
    Case(steps.AddToHaRule(G, rule="near", nodes="pve1"), with_ha, only="9.2.11"),
    Case(steps.SetFirewall(G, options={"enable": 1, "policy_in": "DROP"},
                           rules=(
            FirewallRule(type="in", action="ACCEPT", enable=1, proto="tcp", dport="6443"),
            FirewallRule(type="in", action="ACCEPT", enable=1, macro="SSH")))),
    Case(steps.RemoveFromHaRule(G, rule="near"), with_rule, only="9.2.11"),
    Case(steps.RemoveFirewallGroup(G, group="kube"), with_group),
    Case(steps.SetPool(G, pool="theirs"), with_pools),
    Case(steps.SetPool(G, pool="theirs/inner"), with_pools),
    Case(UPLOAD),
    Case(steps.DownloadImage(storage=STORAGE, mark=OURS, url="https://images.example/a.qcow2",
                        filename=f"{OURS.key}.qcow2")),
    Case(steps.UploadImage(storage=STORAGE, mark=OURS, filename=f"{OURS.key}.raw",
                           path=__file__, size_bytes=Path(__file__).stat().st_size,
                           sha256=hashlib.sha256(Path(__file__).read_bytes()).hexdigest())),
    Case(steps.DeleteVolume(storage=STORAGE, mark=OURS, volid=UPLOAD.volid), with_iso),
    Case(steps.EnsureSecurityGroup(**GROUP, rules=(ACCEPT,)), administrator),
    Case(steps.EnsureSecurityGroup(**GROUP, rules=(ACCEPT,)), with_security_group),
    Case(steps.DeleteSecurityGroup(**GROUP), with_security_group),
    Case(steps.EnsurePool(**POOL), administrator),
    Case(steps.DeletePool(**POOL), with_pool),
    Case(steps.EnsureVnet(**VNET, zone="lan", subnet=SUBNET), with_vnet),
    Case(steps.EnsureVnet(**VNET, zone="lan", subnet=SUBNET), with_tenant_vnet),
    Case(steps.ApplySdn(region_name="r1", prefix="moxwell-tenant="), with_tenant_vnet),
    Case(steps.DeleteVnet(**VNET), with_tenant_vnet),
    Case(steps.RevokeToken(token=TOKEN), with_token),
    Case(steps.ReserveVnetAddress(**ADDRESS), with_vnet),
    Case(steps.ReleaseVnetAddress(**ADDRESS, ipam="pve"), with_address),
]  # fmt: skip
NO_GUEST = {
    steps.UploadIso, steps.UploadImage, steps.DownloadImage, steps.DeleteVolume,
    steps.EnsureSecurityGroup, steps.DeleteSecurityGroup, steps.ReserveVnetAddress,
    steps.ReleaseVnetAddress, steps.EnsurePool, steps.DeletePool, steps.EnsureVnet,
    steps.DeleteVnet, steps.ApplySdn, steps.RevokeToken,
}  # fmt: skip


def name(case: Case) -> str:
    return f"{type(case.step).__name__}{'-' + case.only if case.only else ''}"


async def arranged(case: Case, release: str) -> SimStage:
    stage = SimStage(release)
    if case.arrange is not None:
        done = case.arrange(stage)
        if done is not None:
            await done
    return stage


def pairs() -> list[Any]:
    return [
        pytest.param(case, release, id=f"{name(case)} on {release}")
        for case in CASES
        for release in RELEASES
        if case.only in {"", release}
    ]


@pytest.mark.parametrize(("case", "release"), pairs())
def test_a_step_is_idempotent_makes_progress_and_never_waits(case: Case, release: str) -> None:
    async def story() -> None:
        stage = await arranged(case, release)
        await check_step(case.step, stage)
        assert stage.conf(200)["name"] == "stranger"
        await stage.close()

    run_virtual(story())


@pytest.mark.parametrize(("case", "release"), pairs())
def test_a_foreign_mark_is_refused(case: Case, release: str) -> None:
    async def story() -> None:
        stage = await arranged(case, release)
        if type(case.step) in NO_GUEST:
            return
        if case.step.vmid == 300:  # the VMID is used by another guest
            stage.mischief("take-vmid", vmid=300)
            with pytest.raises(Foreign):
                await case.step.perform(stage.pve)
        elif case.step.vmid == 301:  # used on another host: Proxmox notices in the task
            stage.mischief("take-vmid", vmid=301, node="pve2")
            exit_text = await stage.done(await case.step.perform(stage.pve))
            assert isinstance(errors.classify_exit(exit_text), errors.Exists)
            assert stage.conf(301)["name"] == "stranger"
        else:
            await check_refusal(case.step, stage)
        await stage.close()

    run_virtual(story())


def all_steps() -> set[type[Step]]:
    found: set[type[Step]] = set()
    queue: list[type[Step]] = [Step]
    while queue:
        children = queue.pop().__subclasses__()
        queue.extend(children)
        found.update(
            c
            for c in children
            if c.perform is not Step.perform and c.__module__.startswith("moxwell.pve.")
        )
    return found


def test_every_step_is_tried() -> None:
    assert all_steps() == {type(case.step) for case in CASES}


@pytest.mark.parametrize(
    "step",
    [
        steps.UploadIso(storage=STORAGE, mark=OURS, filename="debian.iso", content=Blob(b"")),
        steps.DownloadImage(storage=STORAGE, mark=OURS, url="https://x/y", filename="debian.qcow2"),
        steps.DeleteVolume(storage=STORAGE, mark=OURS, volid="shared:200/vm-200-disk-0.qcow2"),
        steps.DeleteVolume(
            storage=STORAGE, mark=OURS, volid=f"shared:iso/{steps.iso_name(THEIRS)}"
        ),
    ],
    ids=lambda step: type(step).__name__,
)
def test_a_volume_without_our_mark_is_refused(step: Step) -> None:
    async def story() -> None:
        stage = SimStage()
        with pytest.raises(Foreign):
            await step.perform(stage.pve)
        assert stage.transport.sent == []

    run_virtual(story())


@pytest.mark.parametrize("kind", [steps.EnsureSecurityGroup, steps.DeleteSecurityGroup])
def test_a_security_group_with_another_comment_is_refused(kind: type[Step]) -> None:
    async def story() -> None:
        stage = SimStage()
        administrator(stage)
        await stage.pve.firewall.create_group("mox-a", comment="moxwell-tenant=ab")
        with pytest.raises(Foreign):
            await kind(**GROUP).perform(stage.pve)
        await stage.close()

    run_virtual(story())


def test_an_address_of_another_mac_is_not_released() -> None:
    async def story() -> None:
        stage = SimStage()
        await with_address(stage)
        before = stage.snapshot()
        step = steps.ReleaseVnetAddress(**{**ADDRESS, "mac": "02:00:00:00:00:02"}, ipam="pve")
        assert await step.perform(stage.pve) is None
        assert stage.snapshot() == before
        await stage.close()

    run_virtual(story())


def test_a_step_for_another_region_is_a_bug() -> None:
    async def story() -> None:
        stage = SimStage()
        with pytest.raises(Bug, match="region r2"):
            await steps.Destroy(GuestRef("r2", "pve1", 100, OURS)).perform(stage.pve)
        assert stage.transport.sent == []

    run_virtual(story())


# ------------------------------------------------------------------ single rules


async def cloned(stage: SimStage) -> GuestRef:
    step = steps.Clone(NEW, template=9000, template_host="pve1", name="new")
    assert await stage.done(await step.perform(stage.pve)) == "OK"
    return NEW


def test_a_clone_has_the_mark_and_the_template_is_unchanged() -> None:
    async def story() -> None:
        stage = SimStage()
        before = dict(stage.conf(9000))
        await cloned(stage)
        assert OURS.line in stage.conf(300)["description"]
        assert stage.conf(9000) == before
        await stage.close()

    run_virtual(story())


def test_a_clone_in_progress_is_busy_not_foreign() -> None:
    async def story() -> None:
        stage = SimStage()
        stage.mischief("pace", bandwidth=20e6)
        step = steps.Clone(NEW, template=9000, template_host="pve1", name="new", full=True)
        upid = await step.perform(stage.pve)
        await stage.clock.sleep(1)
        for again in (step, steps.Configure(NEW, changes={"cores": "2"}), steps.Destroy(NEW)):
            with pytest.raises(errors.Locked):
                await again.perform(stage.pve)
        assert await stage.done(upid) == "OK"
        assert await step.perform(stage.pve) is None
        await stage.close()

    run_virtual(story())


def test_config_changes_are_one_request_with_a_digest() -> None:
    async def story() -> None:
        stage = SimStage()
        changes = {"cores": "2", "memory": "1024", "tags": OURS.tags(["a"]), "onboot": "1"}
        await steps.Configure(G, changes=changes).perform(stage.pve)
        assert [method for method, _ in stage.transport.sent] == ["GET", "PUT"]
        stage.transport.sent.clear()
        seen = await stage.pve.qemu.config("pve1", 100)
        step = steps.Configure(G, changes={"cores": "4"}, digest=seen.digest)
        assert step.is_needed(seen)
        await step.perform(stage.pve)  # nothing is read again
        assert [method for method, _ in stage.transport.sent] == ["GET", "PUT"]
        with pytest.raises(errors.ConfigChanged):
            await step.perform(stage.pve)
        await stage.close()

    run_virtual(story())


def test_the_boot_order_is_set_after_a_new_drive() -> None:
    async def story() -> None:
        stage = SimStage()
        wanted = {"scsi1": "shared:1", "boot": "order=scsi1;scsi0"}
        step = steps.Configure(G, changes=wanted)
        await stage.settle(await step.perform(stage.pve))
        assert stage.conf(100)["boot"] != wanted["boot"]
        await stage.settle(await step.perform(stage.pve))
        assert stage.conf(100)["boot"] == wanted["boot"]
        assert await step.perform(stage.pve) is None
        await stage.close()

    run_virtual(story())


def test_a_used_slot_is_a_conflict() -> None:
    async def story() -> None:
        stage = SimStage()
        with pytest.raises(steps.SlotTaken):
            await steps.AttachIso(G, slot="scsi0", volid=UPLOAD.volid).perform(stage.pve)

    run_virtual(story())


def test_a_missing_disk_is_an_error() -> None:
    async def story() -> None:
        stage = SimStage()
        with pytest.raises(errors.ObjectMissing, match="scsi7"):
            await steps.ResizeDisk(G, slot="scsi7", size_gib=9).perform(stage.pve)

    run_virtual(story())


def test_a_guest_on_another_host_is_not_treated_as_destroyed() -> None:
    async def story() -> None:
        stage = SimStage()
        stage.mischief("move-guest", vmid=100, node="pve2")
        assert await steps.Destroy(G).perform(stage.pve) is None
        assert 100 in stage.region.guests
        assert await steps.Migrate(G, target="pve2").perform(stage.pve) is None
        with pytest.raises(errors.GuestMissing):
            await steps.Start(G).perform(stage.pve)
        with pytest.raises(errors.Exists):  # the HA resource is not removed through the wrong host
            await steps.RemoveHa(G).perform(stage.pve)

    run_virtual(story())


def test_removing_the_last_group_disables_a_firewall_without_policy() -> None:
    async def story(policy: str) -> tuple[object, int]:
        stage = SimStage()
        await with_group(stage)
        if policy:
            await stage.pve.firewall.set_options("pve1", 100, {"policy_in": policy})
        await steps.RemoveFirewallGroup(G, group="kube").perform(stage.pve)
        have = await stage.pve.firewall.options("pve1", 100)
        rules = await stage.pve.firewall.rules("pve1", 100)
        await stage.close()
        return have.get("enable", 0), len(rules)

    assert run_virtual(story("")) == (0, 0)
    assert run_virtual(story("DROP")) == (1, 0)


def test_other_rules_keep_the_firewall_enabled() -> None:
    async def story() -> None:
        stage = SimStage()
        await with_group(stage)
        theirs = FirewallRule(type="in", action="ACCEPT", enable=1, macro="SSH")
        await stage.pve.firewall.add_rule("pve1", 100, theirs)
        await steps.RemoveFirewallGroup(G, group="kube").perform(stage.pve)
        assert (await stage.pve.firewall.options("pve1", 100))["enable"] == 1
        assert [r.macro for r in await stage.pve.firewall.rules("pve1", 100)] == ["SSH"]
        await stage.close()

    run_virtual(story())


def test_another_volume_in_the_slot_is_not_removed() -> None:
    async def story() -> None:
        stage = SimStage()
        await volume(stage)
        attached = steps.Configure(G, changes={"scsi1": PVC})
        await stage.settle(await attached.perform(stage.pve))
        step = steps.RemoveDisk(G, slot="scsi1", volid="shared:100/vm-100-disk-1.raw")
        assert await step.perform(stage.pve) is None
        assert PVC in stage.conf(100)["scsi1"]
        await stage.close()

    run_virtual(story())


def test_the_last_resource_cannot_leave_its_ha_rule() -> None:
    async def story() -> None:
        stage = SimStage("9.2.11")
        await with_ha(stage)
        await stage.pve.ha.create_rule("near", "node-affinity", ("vm:100",), nodes="pve1")
        with pytest.raises(steps.LastHaRuleResource, match="last resource"):
            await steps.RemoveFromHaRule(G, rule="near").perform(stage.pve)
        await stage.close()

    run_virtual(story())


def test_an_ha_group_that_is_no_longer_desired_is_removed() -> None:
    async def story() -> None:
        stage = SimStage("8.4.21")
        await stage.pve.ha.create_group("near", nodes="pve1")
        await steps.RegisterHa(G, state="stopped", group="near").perform(stage.pve)
        await steps.RegisterHa(G, state="stopped").perform(stage.pve)
        assert (await stage.pve.ha.resource("vm:100")).group == ""
        await stage.close()

    run_virtual(story())
