"""The stories of machines on the embedded stage: our API, stand-ins, lab guests, one process."""

from typing import Any

import pytest

from moxwell.testing.embedded_stage import embedded_stage
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_stories import SCENES, Scene, begin, end


def _phrase(scene: Any) -> str:
    return str(scene.__name__).replace("_", " ")


async def _tell(*scenes: Scene) -> None:
    async with embedded_stage() as stage:
        await begin(stage)
        for scene in scenes:
            await scene(stage)
        await end(stage)


@pytest.mark.parametrize("scene", SCENES, ids=_phrase)
def test_scene(scene: Scene) -> None:
    run_virtual(_tell(scene))


@pytest.mark.slow
def test_all_scenes_on_one_cluster() -> None:
    run_virtual(_tell(*SCENES))
