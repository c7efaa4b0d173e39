"""An in-memory API server on virtual time, called in-process."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moxwell.embedded.apiserver.hooks import Hooks
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.testing.api_calls import ApiClient
from moxwell.testing.loop import LoopClock, run_virtual

Story = Callable[[ApiClient], Awaitable[Any]]


@pytest.fixture
def play() -> Callable[..., Any]:
    """Run a story against a new API server."""

    def run(story: Story, hooks: Hooks | None = None) -> Any:
        async def main() -> Any:
            async with EmbeddedApiServer(clock=LoopClock(), hooks=hooks) as api_server:
                return await story(ApiClient(api_server))

        return run_virtual(main())

    return run
