"""ProxmoxTemplates: made, changed, replaced and deleted by the controller, killed at any effect."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from moxwell.api.karpenter.proxmox_templates import ProxmoxTemplate
from moxwell.controllers.infra.template_build.from_spec import BAKE
from moxwell.pve.client import PveWriter
from moxwell.pve.switchable_transport import SwitchableTransport
from moxwell.runtime.manager import Manager
from moxwell.testing.effect_counter import EffectCounter
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine
from moxwell.testing.pve import SimTransport
from moxwell.testing.reconcile import crash_after_each_effect
from moxwell.testing.two_regions import (
    TOKEN,
    TOKEN_SECRET,
    WORLD,
    TwoRegions,
    program,
    ready,
    running,
    start_two_regions,
)

IMPORTS = WORLD.replace("[iso, vztmpl]", "[iso, vztmpl, import, images]")
SOFTWARE = '{"kubernetes": "v1.35.0"}'
URL = "https://images.example/noble.img"
SPEC: dict[str, Any] = {
    "region": "north",
    "sourceImage": {"url": URL},
    "storageIDs": ["local", "lvm"],
    "network": [{"bridge": "vmbr0"}],
    "agent": {"enabled": True},
    "tags": ["k8s-v1.35.0"],
}


async def apply_template(env: TwoRegions, bake: str = "", **changes: Any) -> None:
    notes = {BAKE: bake} if bake else {}
    obj = {"metadata": {"name": "noble", "annotations": notes}, "spec": {**SPEC, **changes}}
    await env.kube.create(msgspec.convert(obj, ProxmoxTemplate))


def condition(obj: ProxmoxTemplate) -> tuple[str, str, str]:
    found = next((c for c in obj.status.conditions if c.type == "Ready"), None)
    return (found.status, found.reason, found.message) if found else ("", "", "")


async def until(
    env: TwoRegions, test: Callable[[ProxmoxTemplate], bool], seconds: float = 900
) -> ProxmoxTemplate:
    async with asyncio.timeout(seconds):
        while True:
            obj = await env.kube.get(ProxmoxTemplate, "noble")
            if test(obj):
                return obj
            await asyncio.sleep(1)


def is_ready(obj: ProxmoxTemplate) -> bool:
    return condition(obj)[0] == "True"


def made(env: TwoRegions, region: str = "north") -> dict[int, Any]:
    return {v: g for v, g in env.region(region).guests.items() if v not in (201, 9000)}


def left_files(env: TwoRegions, region: str = "north") -> list[str]:
    return [name for name in env.volumes(region) if "import/" in name or "moxwell-bake" in name]


def test_a_template_is_made_and_a_machine_uses_it_by_its_version() -> None:
    async def main() -> None:
        async with running("north", world=IMPORTS) as (env, _):
            await apply_template(env)
            obj = await until(env, is_ready)
            assert len(obj.status.zones) == 3
            assert obj.status.image_id.endswith(".qcow2")
            assert {guest.conf["template"] for guest in made(env).values()} == {1}
            assert left_files(env) == []
            await apply_cluster(env)
            await apply_machine(env, "m", templateSelector={"matchTags": ["k8s-v1.35.0"]})
            machine = await env.until("m", ready)
            claim = machine.spec.claim
            assert claim is not None
            assert f"north/{claim.template_host}/{claim.template}" in obj.status.zones

    run_virtual(main())


def test_a_builder_bakes_the_node_software_of_the_annotation() -> None:
    async def main() -> None:
        async with running("north", world=IMPORTS) as (env, _):
            await apply_template(env, SOFTWARE)
            obj = await until(env, is_ready)
            assert len(obj.status.zones) == 3
            for guest in made(env).values():
                assert guest.conf["template"] == 1
                assert "moxwell-sealed=1" in guest.conf["description"]
                assert "ide0" not in guest.conf
            assert left_files(env) == []

    run_virtual(main())


def test_a_failed_builder_is_reported_and_deleted_with_its_object() -> None:
    async def main() -> None:
        async with running("north", world=IMPORTS) as (env, _):
            env.guest_os.failing.add("noble")
            await apply_template(env, SOFTWARE)
            obj = await until(env, lambda obj: condition(obj)[1] == "BakeFailed")
            assert "no route to the mirror" in condition(obj)[2]
            await env.kube.delete(ProxmoxTemplate, "noble")
            async with asyncio.timeout(600):
                while await env.kube.find(ProxmoxTemplate, "noble") is not None:
                    await asyncio.sleep(1)
            assert made(env) == {}
            assert left_files(env) == []

    run_virtual(main())


@pytest.mark.parametrize("text", ["yes", "{}", '{"kubernetes": "new"}'])
def test_an_annotation_that_cannot_be_read_is_refused(text: str) -> None:
    async def main() -> None:
        async with running("north", world=IMPORTS) as (env, _):
            await apply_template(env, text)
            obj = await until(env, lambda obj: condition(obj)[1] == "InvalidNodeSoftware")
            assert made(env) == {}
            assert "v1.34.1" in condition(obj)[2]

    run_virtual(main())


def test_tags_change_in_place_and_another_image_replaces_the_copies() -> None:
    async def main() -> None:
        async with running("north", world=IMPORTS) as (env, _):
            await apply_template(env)
            first = (await until(env, is_ready)).status.zones
            change: dict[str, Any] = {"spec": {"tags": ["k8s-v1.35.1"]}}
            await env.kube.merge(ProxmoxTemplate, "noble", change)

            def is_changed(obj: ProxmoxTemplate) -> bool:
                tags = [guest.conf["tags"] for guest in made(env).values()]
                return is_ready(obj) and all("k8s-v1.35.1" in text for text in tags)

            second = (await until(env, is_changed)).status.zones
            assert second == first
            image = {"spec": {"sourceImage": {"url": URL.replace("noble", "newer")}}}
            await env.kube.merge(ProxmoxTemplate, "noble", image)
            replaced = await until(
                env, lambda obj: is_ready(obj) and not set(obj.status.zones) & set(first)
            )
            assert len(replaced.status.zones) == 3
            assert len(made(env)) == 3

    run_virtual(main())


def test_the_copies_move_to_another_resource_pool() -> None:
    async def main() -> None:
        async with running("north", world=IMPORTS) as (env, _):
            pools = env.region("north").pools
            token = f"{TOKEN}={TOKEN_SECRET}"
            transport = SimTransport(env.engine, "north", token=token)
            writer = PveWriter(SwitchableTransport(transport))
            for name in ("red", "blue"):
                await writer.pools.create(name)
            await apply_template(env, resourcePool="red")
            first = (await until(env, is_ready)).status.zones
            assert set(pools["red"].vms) == set(made(env))
            change: dict[str, Any] = {"spec": {"resourcePool": "blue"}}
            await env.kube.merge(ProxmoxTemplate, "noble", change)

            def is_moved(obj: ProxmoxTemplate) -> bool:
                return is_ready(obj) and set(pools["blue"].vms) == set(made(env))

            assert (await until(env, is_moved)).status.zones == first
            assert not pools["red"].vms

    run_virtual(main())


@pytest.mark.parametrize(
    "changes, reason, field_",
    [
        ({"storageIDs": ["ceph"]}, "TemplateStorageMissing", "storageIDs"),
        ({"storageIDs": ["nowhere"]}, "TemplateStorageMissing", "storageIDs"),
        ({"region": "west"}, "UnknownRegion", "region"),
        ({"sourceImage": {"url": "https://x.example/a.xz"}}, "InvalidImage", "compressed"),
        (
            {"sourceImage": {"url": "https://127.0.0.1/a.img"}},
            "ImageUnavailable",
            "sourceImage.url",
        ),
        (
            {"sourceImage": {"url": URL, "checksum": "0" * 64, "checksumType": "sha256"}},
            "ChecksumMismatch",
            "sourceImage.checksum",
        ),
    ],
)
def test_bad_input_is_a_condition_and_leaves_nothing(
    changes: dict[str, Any], reason: str, field_: str
) -> None:
    async def main() -> None:
        async with running("north", world=IMPORTS) as (env, _):
            await apply_template(env, **changes)
            obj = await until(env, lambda obj: condition(obj)[1] == reason)
            assert field_ in condition(obj)[2]
            assert made(env) == {}
            await env.kube.delete(ProxmoxTemplate, "noble")
            async with asyncio.timeout(600):
                while await env.kube.find(ProxmoxTemplate, "noble") is not None:
                    await asyncio.sleep(1)
            assert left_files(env) == []

    run_virtual(main())


@dataclass
class MakeTemplateStory:
    """Create a ProxmoxTemplate on one shared storage."""

    spec: dict[str, Any] = field(default_factory=lambda: {"storageIDs": ["local", "ceph"]})

    async def world(self) -> TwoRegions:
        return await start_two_regions(IMPORTS.replace("content: [iso, vztmpl, import, images]",
                                                       "content: [iso, import]"))  # fmt: skip

    def program(self, world: TwoRegions, wires: EffectCounter) -> Manager:
        return program(world, "north", wires=wires).manager

    async def act(self, world: TwoRegions) -> None:
        await apply_template(world, **self.spec)

    async def check(self, world: TwoRegions) -> None:
        obj = await until(world, is_ready)
        assert len(obj.status.zones) == 1
        assert len(made(world)) == 1
        assert left_files(world) == []
        await world.close()


@dataclass
class DeleteTemplateStory(MakeTemplateStory):
    """Delete a ProxmoxTemplate whose copies are complete."""

    async def world(self) -> TwoRegions:
        world = await super().world()
        life = program(world, "north").manager
        task = asyncio.create_task(life.run())
        await apply_template(world, **self.spec)
        await until(world, is_ready)
        life.stop()
        await task
        return world

    async def act(self, world: TwoRegions) -> None:
        await world.kube.delete(ProxmoxTemplate, "noble")

    async def check(self, world: TwoRegions) -> None:
        assert await world.kube.find(ProxmoxTemplate, "noble") is None
        assert made(world) == {}
        assert left_files(world) == []
        await world.close()


class BakeTemplateStory(MakeTemplateStory):
    """Make a ProxmoxTemplate whose node software is baked, on one storage that all hosts share."""

    async def act(self, world: TwoRegions) -> None:
        await apply_template(world, SOFTWARE, **self.spec)


@pytest.mark.parametrize("story", [MakeTemplateStory, DeleteTemplateStory, BakeTemplateStory])
def test_a_kill_after_any_effect_leaves_no_second_template(story: type[MakeTemplateStory]) -> None:
    effects = crash_after_each_effect(story(), quiet_seconds=130)
    assert effects
