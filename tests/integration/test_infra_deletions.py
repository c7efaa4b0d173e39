"""Deleting many machines at the same time, with an API server that takes long for each request."""

import asyncio
from typing import Any

import pytest

from moxwell.api.requests import Handler, Request, Response
from moxwell.runtime.settings import ManagerSettings
from moxwell.testing.effect_counter import EffectCounter
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_objects import apply_cluster, apply_machine
from moxwell.testing.two_regions import program, ready, start_two_regions

MACHINES, CONCURRENCY = 20, 10  # as many as the operator has by default
REQUEST_SECONDS = 0.5


class SlowApi(EffectCounter):
    """Delays each request to Kubernetes once it is slow; counts writes of the status."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = False
        self.status_writes = 0

    def kube(self, handler: Handler) -> Handler:
        return super().kube(_Slow(handler, self))


class _Slow:
    def __init__(self, handler: Handler, state: SlowApi) -> None:
        self._handler, self._state = handler, state

    async def handle(self, request: Request) -> Response:
        if self._state.slow:
            await asyncio.sleep(REQUEST_SECONDS)
            self._state.status_writes += request.path.endswith("/status")
        return await self._handler.handle(request)


async def _delete_all(spec: dict[str, Any]) -> tuple[float, float]:
    """Seconds until all machines are gone, and status writes for each."""
    env, api = await start_two_regions(), SlowApi()
    settings = ManagerSettings(elect=False, identity="test", concurrency=CONCURRENCY)
    made = program(env, "north", wires=api, settings=settings)
    life = asyncio.create_task(made.manager.run())
    names = [f"m{number}" for number in range(MACHINES)]
    await apply_cluster(env)
    for name in names:
        await apply_machine(env, name, **spec)
    for name in names:
        await env.until(name, ready)
    api.slow, began = True, env.clock.monotonic()
    await asyncio.gather(*(env.delete(name) for name in names))
    await asyncio.gather(*(env.until_gone(name) for name in names))
    seconds = env.clock.monotonic() - began
    made.manager.stop()
    await life
    await env.close()
    return seconds, api.status_writes / MACHINES


@pytest.mark.parametrize(("spec", "limit"), [({}, 7), ({"shutdownSeconds": 0}, 4)])
def test_a_slow_api_server_delays_deletions_little(spec: dict[str, Any], limit: int) -> None:
    """Nothing is written before the guest is destroyed, and ten machines are at work at once."""
    seconds, status_writes = run_virtual(_delete_all(spec))
    assert seconds <= limit
    assert status_writes <= 1
