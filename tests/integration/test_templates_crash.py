"""Killed after each write of a build or a removal, the next run completes it and leaves nothing."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from moxwell.controllers.infra.template_build.design import TemplateDesign, TemplateImage
from moxwell.testing.loop import run_virtual
from moxwell.testing.small_region import SimStage
from moxwell.testing.template_region import (
    MAJORS,
    design_of,
    image_files,
    template_builder,
    template_stage,
    templates_of,
)


class Killed(BaseException):
    """The end of the program under test."""


class KillingTransport:
    """Ends the program at its n-th write, before (``sent`` False) or after Proxmox received it."""

    def __init__(self, inner: Any, last: int, *, sent: bool) -> None:
        self._inner, self._last, self._sent = inner, last, sent
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def request(self, method: str, path: str, params: Any = None, **more: Any) -> Any:
        send = partial(self._inner.request, method, path, params, **more)
        return await send() if method == "GET" else await self._write(send)

    async def upload(self, *args: Any, **more: Any) -> Any:
        return await self._write(partial(self._inner.upload, *args, **more))

    async def _write(self, send: Callable[[], Awaitable[Any]]) -> Any:
        self.writes += 1
        if self.writes < self._last:
            return await send()
        if self.writes == self._last and self._sent:
            await send()
        raise Killed


async def _run(
    stage: SimStage, design: TemplateDesign, last: int, *, sent: bool, **more: Any
) -> bool:
    """Run until the n-th write; returns whether the program was killed."""
    transport = KillingTransport(stage.transport, last, sent=sent)
    try:
        async with template_builder(stage, transport=transport) as (builder, _):
            await (builder.remove if more.get("remove") else builder.build)(design)
    except Killed:
        return True
    return False


@pytest.mark.parametrize("sent", [True, False], ids=["after the write", "before the write"])
@pytest.mark.parametrize("major", MAJORS)
def test_a_build_is_completed_after_a_kill_at_any_write(major: int, sent: bool) -> None:
    async def main(last: int) -> bool:
        stage = template_stage(major)
        killed = await _run(stage, design_of(), last, sent=sent)
        await _run(stage, design_of(), 10_000, sent=True)
        assert {host: len(vmids) for host, vmids in templates_of(stage).items()} == {
            "pve1": 1,
            "pve2": 1,
        }
        assert image_files(stage) == []
        return killed

    assert _count(main) == 8  # download, create, convert, delete the image; two hosts


@pytest.mark.parametrize("pause", [0.0, 300.0], ids=["at once", "later"])
def test_a_killed_build_can_be_removed_instead(pause: float) -> None:
    async def main(last: int) -> bool:
        stage = template_stage(8)
        killed = await _run(stage, design_of(), last, sent=True)
        await asyncio.sleep(pause)
        await _run(stage, design_of(), 10_000, sent=True, remove=True)
        await asyncio.sleep(300)  # a task that Proxmox had accepted may end after the removal
        await _run(stage, design_of(), 10_000, sent=True, remove=True)
        assert templates_of(stage) == {}
        assert image_files(stage) == []
        return killed

    assert _count(main) == 8


def test_a_replacement_is_completed_after_a_kill_at_any_write() -> None:
    new = design_of(image=TemplateImage(url="https://images.example/newer.img"))

    async def main(last: int) -> bool:
        stage = template_stage(9)
        await _run(stage, design_of(), 10_000, sent=True)
        before = templates_of(stage)
        killed = await _run(stage, new, last, sent=True)
        await _run(stage, new, 10_000, sent=True)
        after = templates_of(stage)
        assert [len(vmids) for vmids in after.values()] == [1, 1]
        assert all(before[host] != after[host] for host in after)
        assert image_files(stage) == []
        return killed

    assert _count(main) == 10


def _count(main: Any) -> int:
    """Run with a kill at each write until there is none; returns the number of kills."""
    for last in range(1, 50):
        if not run_virtual(main(last)):
            return last - 1
    raise AssertionError("the program writes without end")
