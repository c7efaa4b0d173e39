"""What the real guests get from a VM, and the images that they run."""

import asyncio
import hashlib
import json
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from moxwell.bootstrap.iso import build_iso
from moxwell.lab.proxmox.guest import GuestAgentNotRunning, GuestVm
from moxwell.lab.proxmox.state import SimRegion, SimStorage, SimVolume
from realnode import container, guests, images, template

DRIVE = {"user-data": b"#cloud-config\n", "meta-data": b"instance-id: i\n"}


def vm(conf: dict[str, Any], medium: bytes | None) -> GuestVm:
    return GuestVm("r1", "pve1", 100, "qemu", "w1", "uuid", conf, lambda drive: medium)


@pytest.mark.parametrize(
    ("conf", "medium", "names"),
    [
        ({"ide0": "local:iso/a.iso,media=cdrom"}, build_iso(DRIVE), sorted(DRIVE)),
        ({"ide0": "local:iso/a.iso,media=cdrom"}, b"not an ISO", []),
        ({"ide0": "none,media=cdrom"}, None, []),
        ({"scsi0": "local-lvm:vm-100-disk-0"}, build_iso(DRIVE), []),
    ],
    ids=["a config drive", "another medium", "an empty drive", "a disk"],
)
def test_the_seed_of_a_vm(conf: dict[str, Any], medium: bytes | None, names: list[str]) -> None:
    found = guests.seed(vm(conf, medium))
    assert sorted(found) == [f"{guests.SEED}/{name}" for name in names]
    assert all(found[f"{guests.SEED}/{name}"] == DRIVE[name] for name in names)


async def test_a_vm_without_a_config_drive_has_no_operating_system(tmp_path: Path) -> None:
    real = guests.RealGuests([tmp_path], tmp_path, "br0")
    empty = vm({}, None)
    await real.booted(empty)
    assert not real.handles_shutdown(empty)
    with pytest.raises(GuestAgentNotRunning):
        await real.agent(empty, "ping", {})
    await real.stopped("r1", 100)


async def test_a_vm_boots_again_from_its_disk_without_a_config_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = list[dict[str, bytes]]()

    def start(*args: Any) -> FakeContainer:
        started.append(args[3])
        return FakeContainer(ended=True)

    monkeypatch.setattr(container, "start", start)
    region = SimRegion("r1", "")
    disk = SimVolume("vm-100-disk-0", "raw", "images", 1, vmid=100)
    region.storages["local"] = SimStorage("local", "dir", volumes={"pve1": {disk.name: disk}})
    real = guests.RealGuests([tmp_path], tmp_path, "br0", {"r1": region})
    conf = {"scsi0": "local:vm-100-disk-0", "net0": "virtio=BC:24:11:00:00:01"}
    await real.booted(vm(conf | {"ide0": "local:iso/a.iso,media=cdrom"}, build_iso(DRIVE)))
    await real.stopped("r1", 100)
    await real.booted(vm(conf, None))
    assert real.handles_shutdown(vm(conf, None))
    first, second = started
    assert set(first) - set(second) == {f"{guests.SEED}/{name}" for name in DRIVE}
    await real.stop_all()


@pytest.mark.parametrize("ended", [True, False], ids=["in time", "not in time"])
async def test_a_shutdown_powers_off_once_the_guest_ended(
    ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The power is switched in the event loop, where the simulator runs."""
    monkeypatch.setattr(container, "start", lambda *args: FakeContainer(ended))
    real, off = guests.RealGuests([tmp_path], tmp_path, "br0"), list[object]()
    medium = {"ide0": "local:iso/a.iso,media=cdrom", "net0": "virtio=BC:24:11:00:00:01"}
    guest = vm(medium, build_iso(DRIVE))
    guest = replace(guest, power_off=lambda: off.append(asyncio.get_running_loop()))
    await real.booted(guest)
    assert await real.agent(guest, "shutdown", {}) == {}
    assert len(off) == ended
    await real.stop_all()


@dataclass
class FakeContainer:
    """A guest that shuts down in time or not."""

    ended: bool
    root: Path = Path("/nowhere")

    @property
    def outer(self) -> "FakeContainer":
        return self

    def poll(self) -> None:
        return None

    def shut_down(self) -> bool:
        return self.ended

    def stop(self) -> None:
        self.ended = True


def test_an_image_archive_is_complete(tmp_path: Path) -> None:
    images.write_archive(tmp_path / "images.tar", b"busybox")
    with tarfile.open(tmp_path / "images.tar") as archive:
        files = {m.name: archive.extractfile(m) for m in archive.getmembers()}
        data = {name: file.read() for name, file in files.items() if file is not None}
    index = json.loads(data["index.json"])
    named = [m["annotations"]["io.containerd.image.name"] for m in index["manifests"]]
    assert named == [images.PAUSE, images.DEFAULT_PAUSE, images.SHELL]
    for manifest in index["manifests"]:
        body = json.loads(data[blob(manifest)])
        for part in (manifest, body["config"], *body["layers"]):
            assert hashlib.sha256(data[blob(part)]).hexdigest() == part["digest"].split(":")[1]
            assert len(data[blob(part)]) == part["size"]


def blob(descriptor: dict[str, Any]) -> str:
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


def test_the_template_contains_nothing_of_a_cluster() -> None:
    text = "".join(template.FILES.values())
    assert "token" not in text
    assert "https://" not in text
