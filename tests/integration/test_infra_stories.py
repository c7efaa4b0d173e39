"""The stories of machines with embedded API server, embedded Cluster API and simulated guests."""

from typing import Any

import pytest

from moxwell.testing.embedded_environment import embedded_environment
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_stories import STORIES, Story, begin, end


def _title(story: Any) -> str:
    return str(story.__name__).replace("_", " ")


async def _run(*stories: Story) -> None:
    async with embedded_environment() as env:
        await begin(env)
        for story in stories:
            await story(env)
        await end(env)


@pytest.mark.parametrize("story", STORIES, ids=_title)
def test_story(story: Story) -> None:
    run_virtual(_run(story))


@pytest.mark.slow
def test_all_stories_on_one_cluster() -> None:
    run_virtual(_run(*STORIES))
