"""The documented roles are sufficient and contain no unneeded privilege."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from moxwell.csi import native_snapshots, permissions
from moxwell.csi.controller import ControllerService
from moxwell.csi.errors import OperationPending
from moxwell.csi.ids import get_volume
from moxwell.errors import MoxwellError
from moxwell.pve import preflight
from moxwell.pve.effects import Owned
from moxwell.pve.preflight import Feature
from moxwell.testing import csi_calls as calls
from moxwell.testing.csi import CsiEnvironment
from moxwell.testing.loop import run_virtual
from moxwell.testing.small_region import grant

Work = Callable[[ControllerService, str], Awaitable[None]]


async def volumes(control: ControllerService, region: str) -> None:
    volume = await calls.create(control, "pvc-1", region=region)
    await calls.attach(control, volume)
    await calls.expand(control, volume, 2)
    await calls.modify(control, volume, diskIOPS="100")
    await calls.detach(control, volume)
    await calls.delete(control, volume)
    assert await calls.volumes(control) == []


async def copies(control: ControllerService, region: str) -> None:
    for storage, zone in (("local-lvm", f"{region}-h0"), ("local-zfs", f"{region}-h0")):
        volume = await calls.create(control, f"pvc-{storage}", storage, region=region, zone=zone)
        taken = await calls.snapshot(control, f"snap-{storage}", volume)
        back = await calls.create(
            control,
            f"pvc-back-{storage}",
            storage,
            region=region,
            zone=zone,
            source=calls.of_snapshot(taken),
        )
        await calls.delete(control, back)
        await calls.unsnapshot(control, taken)
        await calls.delete(control, volume)


async def moves(control: ControllerService, region: str) -> None:
    volume = await calls.create(control, "pvc-1", "local-lvm", region=region, zone=f"{region}-h0")
    current = await calls.create(
        control,
        "pvc-2",
        "local-lvm",
        region=region,
        zone=f"{region}-h1",
        source=calls.of_volume(volume),
    )
    await calls.delete(control, volume)
    await calls.delete(control, current)


async def replicas(control: ControllerService, region: str) -> None:
    params = {"replicate": "true", "replicateZones": f"{region}-h0,{region}-h1"}
    volume = await calls.create(
        control, "pvc-1", "local-zfs", region=region, zone=f"{region}-h0", params=params
    )
    await calls.attach(control, volume, 102)
    await calls.detach(control, volume, 102)
    await calls.delete_replicated(control, volume)


WORK: dict[str, Work] = {
    "volumes": volumes,
    "snapshots and clones": copies,
    "clones on another host, volume migrate": moves,
    "replicated volumes": replicas,
    "detection of disks attached by others": volumes,
}


def limited(env: CsiEnvironment, features: tuple[Feature, ...], without: str = "") -> None:
    for world in env.engine.runtimes.values():
        world.region.access.acl = []
        grant(world.region, "csi@pve", features)
        role = world.region.access.roles["Moxwell"]
        world.region.access.roles["Moxwell"] = [p for p in role if p != without]


async def found(env: CsiEnvironment, region: str) -> dict[str, list[str]]:
    """The missing privileges by capability."""
    report = await permissions.check(env.driver.regions[region].reader)
    return {f.capability: sorted({n.privilege for n in f.missing}) for f in report}


REGIONS = pytest.mark.parametrize(("region", "major"), [("r1", 8), ("r2", 9)])


@REGIONS
@pytest.mark.parametrize("capability", WORK)
def test_the_role_of_a_capability_is_sufficient(
    tmp_path: Path, region: str, major: int, capability: str
) -> None:
    async def scenario() -> None:
        env = CsiEnvironment(tmp_path)
        limited(env, permissions.CAPABILITIES[capability])
        async with env.running():
            assert (await found(env, region))[capability] == []
            await WORK[capability](env.controller, region)
        await env.close()

    run_virtual(scenario())


# Checked but not needed by these operations: auditing only limits what is visible, and a disk can
# be
# set when a guest is created.
UNFELT = {(p, c) for c in permissions.CAPABILITIES for p in ("Sys.Audit",)} | {
    ("VM.Config.Disk", "snapshots and clones"),
    ("VM.Config.Disk", "clones on another host, volume migrate"),
}
# Version 9 asks for VM.Replicate instead; the privilege is for the deletion of disks only.
UNFELT_ON_9 = UNFELT | {("Datastore.Allocate", "replicated volumes")}
CASES = [
    pytest.param(region, capability, privilege, id=f"{capability} without {privilege} on {major}")
    for region, major in (("r1", 8), ("r2", 9))
    for capability, features in permissions.CAPABILITIES.items()
    for privilege in preflight.role(major, features)
]


@pytest.mark.parametrize(("region", "capability", "privilege"), CASES)
def test_a_missing_privilege_is_reported_and_needed(
    tmp_path: Path, region: str, capability: str, privilege: str
) -> None:
    async def scenario() -> None:
        env = CsiEnvironment(tmp_path)
        limited(env, permissions.CAPABILITIES[capability], privilege)
        async with env.running():
            report = await permissions.check(env.driver.regions[region].reader)
            result = next(f for f in report if f.capability == capability)
            assert {n.privilege for n in result.missing} == {privilege}
            assert f"missing {privilege} on /" in str(result)
            if (privilege, capability) not in (UNFELT if region == "r1" else UNFELT_ON_9):
                with pytest.raises(MoxwellError):
                    await WORK[capability](env.controller, region)
        await env.close()

    run_virtual(scenario())


def test_missing_privileges_of_other_capabilities_are_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        env = CsiEnvironment(tmp_path)
        limited(env, ("volumes",))
        async with env.running():
            missing = await found(env, "r2")
            assert missing["volumes"] == []
            assert missing["snapshots and clones"] == [
                "VM.Allocate",
                "VM.Clone",
                "VM.Config.Options",
                "VM.Snapshot",
            ]
            with pytest.raises(MoxwellError) as refusal:
                await copies(env.controller, "r1")
            assert "VM.Allocate" in str(refusal.value)
        await env.close()

    run_virtual(scenario())


@REGIONS
def test_a_token_without_sys_audit_detects_a_clone_from_before_a_restart(
    tmp_path: Path, region: str, major: int
) -> None:
    async def scenario() -> None:
        env = CsiEnvironment(tmp_path)
        limited(env, permissions.CAPABILITIES["snapshots and clones"])
        async with env.running():
            control, place = env.controller, env.driver.regions[region]
            zone = f"{region}-h0"
            volume = await calls.create(control, "pvc-1", "local-lvm", region=region, zone=zone)
            await calls.snapshot(control, "snap-1", volume)
            vm = await env.driver.helper_vms.find_for(place, get_volume(volume.volume_id))
            assert vm is not None
            await native_snapshots.refuse_while_cloned(place, vm)
            upid = await place.writer(Owned("test", vmids=(4711,))).qemu.clone(
                vm.host, vm.vmid, 4711, full=True
            )
            with pytest.raises(OperationPending, match="is being cloned"):
                await native_snapshots.refuse_while_cloned(place, vm)
            assert (await place.tasks.wait_ended(upid)).ok
            await native_snapshots.refuse_while_cloned(place, vm)
        await env.close()

    run_virtual(scenario())
