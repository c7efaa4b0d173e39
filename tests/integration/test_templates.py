"""Templates on the simulator of both releases, with exactly the documented privileges."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from moxwell.bootstrap.node_software import NodeSoftware
from moxwell.cli.template_source import opened_source
from moxwell.controllers.infra.template_build.build import TemplateInUse
from moxwell.controllers.infra.template_build.design import (
    Baking,
    TemplateDesign,
    TemplateImage,
)
from moxwell.controllers.infra.template_build.failures import (
    ChecksumMismatch,
    ImageUnavailable,
    ImageUnreadable,
)
from moxwell.controllers.infra.template_build.hardware import TemplateHardware, config_of
from moxwell.errors import MoxwellError
from moxwell.lab.proxmox.volumes.images import qcow2_bytes
from moxwell.pve import preflight
from moxwell.pve.preflight import Need
from moxwell.testing.loop import run_virtual
from moxwell.testing.small_region import THEIRS, SimStage
from moxwell.testing.template_region import (
    MAJORS,
    TEMPLATES,
    URL,
    BuilderGuests,
    design_of,
    image_files,
    template_builder,
    template_stage,
    templates_of,
)

BAKING = Baking(NodeSoftware(kubernetes="v1.34.1"))
CONTENT = qcow2_bytes(3 << 30)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FULL = config_of(TemplateHardware(uefi=True, tpm="v2.0"))


async def _build(stage: SimStage, design: TemplateDesign) -> list[str]:
    said: list[str] = []
    async with template_builder(stage, said.append) as (builder, _):
        await builder.build(design)
    return said


@pytest.mark.parametrize("major", MAJORS)
def test_a_template_is_made_on_each_host_of_a_local_storage(major: int) -> None:
    async def main() -> None:
        stage = template_stage(major)
        said = await _build(stage, design_of(hardware=FULL))
        made = templates_of(stage)
        assert {host: len(vmids) for host, vmids in made.items()} == {"pve1": 1, "pve2": 1}
        conf = stage.conf(made["pve1"][0])
        assert conf["template"] == 1
        assert conf["name"] == "ubuntu"
        assert conf["serial0"] == "socket"
        assert "enabled=1" in conf["agent"]
        assert conf["bios"] == "ovmf"
        assert conf["efidisk0"].startswith("local:")
        assert conf["tpmstate0"].startswith("local:")
        assert "cloudinit" in conf["ide2"]
        assert {"k8s-v1.34.1", "ubuntu-24.04"} <= set(conf["tags"].split(";"))
        assert image_files(stage) == []
        assert "r1/pve1: downloading the image to local" in said

    run_virtual(main())


@pytest.mark.parametrize("major", MAJORS)
def test_one_copy_is_enough_on_a_shared_storage(major: int) -> None:
    async def main() -> None:
        stage = template_stage(major)
        await _build(stage, design_of(storages=("shared",)))
        assert [len(vmids) for vmids in templates_of(stage).values()] == [1]

    run_virtual(main())


def test_a_second_run_changes_nothing_and_a_changed_tag_is_updated_in_place() -> None:
    async def main() -> None:
        stage = template_stage(8)
        await _build(stage, design_of())
        before, sent = templates_of(stage), len(stage.transport.sent)
        await _build(stage, design_of())
        assert {method for method, _ in stage.transport.sent[sent:]} == {"GET"}
        await _build(stage, design_of(tags=("k8s-v1.34.2",)))
        assert templates_of(stage) == before
        assert all(
            "k8s-v1.34.2" in stage.conf(vmid)["tags"] for (vmid,) in templates_of(stage).values()
        )

    run_virtual(main())


def test_another_image_replaces_the_template_and_spares_one_with_linked_clones() -> None:
    async def main() -> None:
        stage = template_stage(8, preflight.needs(8, ("templates", "machines")))
        await _build(stage, design_of())
        (used,), (unused,) = templates_of(stage)["pve1"], templates_of(stage)["pve2"]
        await stage.done(await stage.pve.qemu.clone("pve1", used, 300, name="clone"))
        new = design_of(image=TemplateImage(url=URL.replace("noble", "plucky")))
        async with template_builder(stage) as (builder, _):
            plan = await builder.build(new)
            assert [copy.vmid for copy in plan.in_use] == [used]
            assert unused not in stage.region.guests
            with pytest.raises(TemplateInUse, match="300"):
                await builder.remove(new)
            await stage.done(await stage.pve.qemu.delete("pve1", 300))
            await builder.remove(new)
        assert templates_of(stage) == {}

    run_virtual(main())


def _with_file(stage: SimStage, **row: Any) -> None:
    stage.region.files[URL] = {"qcow2": 3 << 30, **row}


@pytest.mark.parametrize(
    "changes, row, error, said",
    [
        ({"checksum": "0" * 64, "checksum_type": "sha256"}, {}, ChecksumMismatch, "checksum"),
        ({"url": "https://images.example/other.img"}, {}, ImageUnavailable, "sourceImage.url"),
        ({"url": "https://127.0.0.1/a.img"}, {}, ImageUnavailable, "sourceImage.url"),
        ({"name": "a.vmdk"}, {}, ImageUnreadable, "imageName"),
    ],
)
def test_a_wrong_image_is_explained_and_leaves_nothing(
    changes: dict[str, Any], row: dict[str, Any], error: type[MoxwellError], said: str
) -> None:
    async def main() -> None:
        stage = template_stage(9)
        _with_file(stage, **row)
        image = TemplateImage(**{"url": URL, **changes})
        with pytest.raises(error, match=said):
            await _build(stage, design_of(image=image))
        assert templates_of(stage) == {}
        assert image_files(stage) == []

    run_virtual(main())


def test_the_right_checksum_is_accepted() -> None:
    async def main() -> None:
        stage = template_stage(8)
        _with_file(stage)
        image = TemplateImage(url=URL, checksum=SHA256.upper(), checksum_type="sha256")
        await _build(stage, design_of(image=image))
        (vmid,) = templates_of(stage)["pve2"]
        assert "size=3G" in stage.conf(vmid)["scsi0"]

    run_virtual(main())


@pytest.mark.parametrize("major", MAJORS)
def test_a_file_is_uploaded_to_each_host(major: int, tmp_path: Path) -> None:
    file = tmp_path / "image.qcow2"
    file.write_bytes(CONTENT)

    async def main() -> None:
        stage = template_stage(major)
        with opened_source(str(file), f"sha256:{SHA256}", "") as image:
            await _build(stage, design_of(image=image))
        assert set(templates_of(stage)) == {"pve1", "pve2"}
        assert image_files(stage) == []

    run_virtual(main())


def test_a_volume_of_a_storage_is_imported_and_kept() -> None:
    async def main() -> None:
        stage = template_stage(8)
        upid = await stage.pve.storage.download_url(
            "pve2", "local", url=URL, filename="mine.qcow2", content="import"
        )
        await stage.done(upid)
        await _build(stage, design_of(image=TemplateImage(volume="local:import/mine.qcow2")))
        assert set(templates_of(stage)) == {"pve2"}
        assert image_files(stage) == ["pve2:import/mine.qcow2"]

    run_virtual(main())


def test_a_guest_of_another_owner_at_the_vmid_is_left_alone() -> None:
    async def main() -> None:
        stage = template_stage(8)
        design = design_of(hosts=("pve1",))
        first, second = (v for v, _ in zip(design.vmid_candidates("pve1"), range(2), strict=False))
        form = {"name": "other", "memory": "512"}
        await stage.done(await stage.pve.qemu.create("pve1", first, form))
        before = dict(stage.conf(first))
        await _build(stage, design)
        assert stage.conf(first) == before
        assert stage.conf(second)["template"] == 1

    run_virtual(main())


@pytest.mark.parametrize("major", MAJORS)
def test_the_documented_privileges_suffice(major: int) -> None:
    async def main() -> None:
        stage = template_stage(major, guests=BuilderGuests)
        async with template_builder(stage) as (builder, region):
            report = await preflight.check(region.reader, TEMPLATES)
            assert report.ok, str(report)
            await builder.build(design_of(hosts=("pve1",)))
            await builder.build(design_of(hosts=("pve1",), tags=("other",)))
            await builder.build(design_of(hosts=("pve1",), baking=BAKING))
            await builder.remove(design_of())
        assert templates_of(stage) == {}

    run_virtual(main())


LACKS = [
    pytest.param(major, need, id=f"{need.privilege} on {need.path} of {major}")
    for major in MAJORS
    for need in preflight.needs(major, TEMPLATES)
]


@pytest.mark.parametrize("major, lack", LACKS)
def test_every_documented_privilege_is_needed(major: int, lack: Need) -> None:
    rest = tuple(n for n in preflight.needs(major, TEMPLATES) if n != lack)

    async def main() -> None:
        stage = template_stage(major, rest, BuilderGuests)
        async with template_builder(stage) as (builder, _), asyncio.timeout(600):
            await builder.build(design_of(hosts=("pve1",), baking=BAKING))
            await builder.remove(design_of(hosts=("pve1",)))

    with pytest.raises((MoxwellError, TimeoutError)):
        run_virtual(main())


def test_templates_of_another_owner_are_not_touched() -> None:
    async def main() -> None:
        stage = template_stage(9)
        await _build(stage, design_of())
        before = templates_of(stage)
        async with template_builder(stage) as (builder, _):
            await builder.remove(design_of(mark=THEIRS))
        assert templates_of(stage) == before

    run_virtual(main())
