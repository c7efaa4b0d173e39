"""Baked templates: a builder guest installs the node software and becomes the template."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
import yaml

from integration.test_templates_crash import Killed, KillingTransport
from moxwell.bootstrap.baking import BuilderNetwork
from moxwell.bootstrap.node_software import NodeSoftware, install_script
from moxwell.controllers.infra.template_build.bake import BakeFailed
from moxwell.controllers.infra.template_build.design import (
    Baking,
    InvalidTemplate,
    TemplateDesign,
)
from moxwell.controllers.infra.template_build.hardware import TemplateHardware, config_of
from moxwell.errors import Invalid
from moxwell.testing.loop import run_virtual
from moxwell.testing.small_region import SimStage
from moxwell.testing.template_region import (
    MAJORS,
    BuilderGuests,
    design_of,
    image_files,
    template_builder,
    template_stage,
    templates_of,
)

SOFTWARE = NodeSoftware(kubernetes="v1.34.1")
BAKING = Baking(SOFTWARE)
STATIC = Baking(SOFTWARE, BuilderNetwork("192.0.2.10/24", "192.0.2.1", ("192.0.2.53",)))


async def build(stage: SimStage, design: TemplateDesign, transport: Any = None) -> list[str]:
    said: list[str] = []
    async with template_builder(stage, said.append, transport) as (builder, _):
        await builder.build(design)
    return said


def boots_of(stage: SimStage) -> list[dict[str, bytes]]:
    assert isinstance(stage.guests, BuilderGuests)
    return stage.guests.boots


@pytest.mark.parametrize("major", MAJORS)
def test_a_builder_installs_and_becomes_the_template(major: int) -> None:
    async def main() -> None:
        stage = template_stage(major, guests=BuilderGuests)
        said = await build(stage, design_of(baking=BAKING))
        made = templates_of(stage)
        assert {host: len(vmids) for host, vmids in made.items()} == {"pve1": 1, "pve2": 1}
        conf = stage.conf(made["pve1"][0])
        assert conf["template"] == 1
        assert "ide0" not in conf
        assert "cloudinit" in str(conf["ide2"])
        assert "k8s-v1.34.1" in str(conf["tags"])
        assert "moxwell-sealed=1" in str(conf["description"])
        assert image_files(stage) == []
        assert any("installs the node software" in text for text in said)
        assert await build(stage, design_of(baking=BAKING)) == []
        for files in boots_of(stage):
            config = yaml.safe_load(files["user-data"])
            texts = [row["content"] for row in config["write_files"]]
            assert install_script(SOFTWARE) in texts
            assert yaml.safe_load(files["network-config"])["ethernets"]["eth0"]["dhcp4"] is True
        assert len(boots_of(stage)) == 2

    run_virtual(main())


def test_builders_with_one_address_run_one_after_the_other() -> None:
    async def main() -> None:
        stage = template_stage(9, guests=BuilderGuests)
        running: list[int] = []

        async def watch() -> None:
            while True:
                running.append(sum(1 for g in stage.region.guests.values() if g.running))
                await asyncio.sleep(1)

        watcher = asyncio.create_task(watch())
        await build(stage, design_of(baking=STATIC))
        watcher.cancel()
        assert max(running) == 1
        network = yaml.safe_load(boots_of(stage)[0]["network-config"])["ethernets"]["eth0"]
        assert network["addresses"] == ["192.0.2.10/24"]
        assert network["nameservers"] == {"addresses": ["192.0.2.53"]}
        assert len(boots_of(stage)) == 2

    run_virtual(main())


@pytest.mark.parametrize("major", MAJORS)
def test_a_failed_builder_leaves_its_log_and_nothing_else(major: int) -> None:
    async def main() -> None:
        stage = template_stage(
            major, guests=lambda clock: BuilderGuests(clock, "E: Unable to locate package kubelet")
        )
        with pytest.raises(BakeFailed, match=r"Unable to locate package kubelet.*mirrors"):
            await build(stage, design_of(baking=BAKING))
        assert templates_of(stage) == {}
        assert image_files(stage) == []

    run_virtual(main())


def test_a_failed_builder_leaves_the_earlier_template() -> None:
    async def main() -> None:
        stage = template_stage(9, guests=lambda clock: BuilderGuests(clock, "no network"))
        await build(stage, design_of())
        before = templates_of(stage)
        with pytest.raises(BakeFailed):
            await build(stage, design_of(baking=BAKING))
        assert templates_of(stage) == before

    run_virtual(main())


def test_a_builder_without_an_answer_fails_after_an_hour() -> None:
    async def main() -> None:
        stage = template_stage(9)  # no guest operating system
        with pytest.raises(BakeFailed, match=r"60 minutes.*console"):
            await build(stage, design_of(baking=BAKING))
        assert templates_of(stage) == {}

    run_virtual(main())


def test_another_software_makes_another_template() -> None:
    other = Baking(NodeSoftware(kubernetes="v1.34.2"))
    found = {design_of(baking=b).revision for b in (None, BAKING, STATIC, other)}
    assert len(found) == 3  # the address of the builder is not in the template


@pytest.mark.parametrize("sent", [True, False], ids=["after the write", "before the write"])
def test_a_bake_is_completed_after_a_kill_at_any_write(sent: bool) -> None:
    design = design_of(baking=BAKING, hosts=("pve1",))

    async def main(last: int) -> bool:
        stage = template_stage(9, guests=BuilderGuests)
        killed = False
        try:
            await build(stage, design, KillingTransport(stage.transport, last, sent=sent))
        except Killed:
            killed = True
        await build(stage, design)
        (vmid,) = templates_of(stage)["pve1"]
        assert stage.conf(vmid)["template"] == 1
        assert image_files(stage) == []
        return killed

    kills = next(last - 1 for last in range(1, 50) if not run_virtual(main(last)))
    # download, create, upload, attach, start, seal, shut down, detach, convert, delete image, ISO
    assert kills == 11


@pytest.mark.parametrize(
    ("design", "error"),
    [
        (design_of(baking=replace(BAKING, network=BuilderNetwork("192.0.2.10"))), Invalid),
        (design_of(baking=replace(BAKING, network=BuilderNetwork("one"))), Invalid),
        (design_of(baking=Baking(NodeSoftware(kubernetes="1"))), Invalid),
        (
            design_of(baking=BAKING, hardware=config_of(TemplateHardware(agent="0"))),
            InvalidTemplate,
        ),
    ],
    ids=["no prefix", "no address", "no version", "no agent"],
)
def test_what_a_builder_cannot_use_is_refused(
    design: TemplateDesign, error: type[Exception]
) -> None:
    async def main() -> None:
        stage = template_stage(8, guests=BuilderGuests)
        with pytest.raises(error):
            await build(stage, design)
        assert templates_of(stage) == {}
        assert image_files(stage) == []

    run_virtual(main())
