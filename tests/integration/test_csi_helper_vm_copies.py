"""A clone of a helper VM that a person makes is not the helper VM, although it has its mark."""

from pathlib import Path
from typing import Any

import pytest

from moxwell.csi.controller import ControllerService
from moxwell.csi.helper_vms import HelperVM
from moxwell.csi.ids import get_volume
from moxwell.lab.proxmox.access import auth
from moxwell.pve.client import PveWriter
from moxwell.pve.ownership import Foreign
from moxwell.testing import csi_calls as calls
from moxwell.testing.csi import CsiEnvironment
from moxwell.testing.loop import run_virtual
from moxwell.testing.pve import SimTransport

COPY, HOST = 7777, "r1-h0"


def root(env: CsiEnvironment) -> PveWriter:
    world, now = env.world(), env.clock.now().timestamp()
    headers = {
        "cookie": f"PVEAuthCookie={auth.make_ticket(world, 'root@pam', now)}",
        "csrfpreventiontoken": auth.make_csrf(world, "root@pam", now),
    }
    return PveWriter(SimTransport(env.engine, "r1", headers=headers))


async def copy_by_hand(env: CsiEnvironment, vmid: int) -> None:
    """Clone a helper VM; the copy has its description and its tags."""
    host = env.world().guests[vmid].node
    await root(env).qemu.clone(host, vmid, COPY, full=True, storage="ceph")
    await env.clock.sleep(120)
    copied, own = env.conf(COPY), env.conf(vmid)
    assert copied["tags"] == own["tags"]
    assert copied["description"] == own["description"]
    assert f"csi-vmid={vmid}" in own["description"]


def run(folder: Path, story: Any) -> None:
    async def started() -> None:
        env = CsiEnvironment(folder)
        async with env.running(regions=("r1",)):
            await story(env, env.controller)
        await env.close()

    run_virtual(started())


@pytest.mark.parametrize("kind", ["reference", "clone"])
def test_a_copy_is_neither_used_nor_listed_nor_destroyed(tmp_path: Path, kind: str) -> None:
    async def story(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(control, "pvc-1", "ceph", region="r1")
        if kind == "reference":
            taken = await calls.snapshot(control, "snapshot-1", volume)
            (vmid,) = env.helper_vms()
        else:
            of_volume = calls.of_volume(volume)
            back = await calls.create(control, "pvc-2", "ceph", region="r1", source=of_volume)
            vmid = get_volume(back.volume_id).owner
        listed = await calls.volumes(control)
        await copy_by_hand(env, vmid)
        kept = dict(env.conf(COPY))
        assert await calls.volumes(control) == listed
        if kind == "reference":
            other = await calls.snapshot(control, "snapshot-2", volume)
            await calls.unsnapshot(control, other)
            await calls.unsnapshot(control, taken)
        else:
            again = await calls.create(control, "pvc-2", "ceph", region="r1", source=of_volume)
            assert again.volume_id == back.volume_id
            await calls.delete(control, back)
        await calls.delete(control, volume)
        await env.clock.sleep(600)
        assert env.helper_vms() == [COPY]
        assert env.conf(COPY) == kept

    run(tmp_path, story)


def test_steps_refuse_a_copy(tmp_path: Path) -> None:
    async def story(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(control, "pvc-1", "ceph", region="r1")
        await calls.snapshot(control, "snapshot-1", volume)
        (vmid,) = env.helper_vms()
        await copy_by_hand(env, vmid)
        region = env.driver.regions["r1"]
        config = await region.reader.qemu.config(env.world().guests[COPY].node, COPY)
        with pytest.raises(Foreign, match=f"copy of helper VM {vmid}"):
            HelperVM(COPY, HOST, config).ref(region)

    run(tmp_path, story)


def test_helper_vms_of_earlier_versions_are_still_found(tmp_path: Path) -> None:
    """Their descriptions do not name the VMID."""

    async def story(env: CsiEnvironment, control: ControllerService) -> None:
        volume = await calls.create(control, "pvc-1", "ceph", region="r1")
        taken = await calls.snapshot(control, "snapshot-1", volume)
        (vmid,) = env.helper_vms()
        conf = env.conf(vmid)
        conf["description"] = conf["description"].replace(f"csi-vmid={vmid}\n", "")
        await calls.unsnapshot(control, taken)
        await calls.delete(control, volume)
        await env.clock.sleep(600)
        assert env.helper_vms() == []

    run(tmp_path, story)
