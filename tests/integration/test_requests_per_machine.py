"""How many requests and passes a machine costs; unlike times they do not depend on the computer."""

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

import pytest

from moxwell.api.requests import Handler, Request, Response
from moxwell.embedded.apiserver.request_info import parse_path
from moxwell.runtime.queue import Item
from moxwell.runtime.worker import Worker
from moxwell.testing.effect_counter import EffectCounter
from moxwell.testing.embedded_environment import create_environment, create_program
from moxwell.testing.loop import run_virtual
from moxwell.testing.machine_stories import StoryEnvironment, begin

MACHINES = 12
LIMITS: dict[str, float] = {  # per machine, from the request for it until it is ready
    "PATCH proxmoxmachines/status": 8,
    "PATCH machines/status": 6,
    "PATCH proxmoxmachines": 4,
    "PATCH machines": 4,
    "passes of infra.machine": 28,
    "passes of embedded.machine": 11,
    "reads": 32,
    "writes": 35,
}
DELETION_LIMITS: dict[str, float] = {  # until the machine is gone; its status is written late
    "PATCH proxmoxmachines/status": 2.5,
    "PATCH proxmoxmachines": 1.5,
    "DELETE ipaddressclaims": 1,
}


class Counts(EffectCounter):
    """Counts the requests of the program by method and resource."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def kube(self, handler: Handler) -> Handler:
        return _Counted(super().kube(handler), self.seen)


@dataclass
class _Counted:
    handler: Handler
    seen: Counter[str]

    async def handle(self, request: Request) -> Response:
        target = parse_path(request.path)
        if target is not None:
            what = "/".join(filter(None, (target.plural, target.subresource)))
            self.seen[f"{request.method} {what}"] += 1
        return await self.handler.handle(request)


async def _measure(counts: Counts) -> tuple[dict[str, float], dict[str, float]]:
    """What one machine costs until it is ready, and until it is deleted."""
    created = await create_environment()
    manager = create_program(created, counts)
    running = asyncio.create_task(manager.run())
    await begin(created.stage, replicas=0)
    await asyncio.sleep(60)
    before = Counter(counts.seen)
    await created.stage.scale(MACHINES)
    await created.stage.with_nodes(MACHINES)
    made = counts.seen - before
    before = Counter(counts.seen)
    await created.stage.scale(0)
    await created.stage.until("no guests", lambda: _have_no_guests(created.stage))
    deleted = counts.seen - before
    manager.stop()
    with suppress(asyncio.CancelledError):
        await running
    await created.close()
    return _each(made), _each(deleted)


async def _have_no_guests(stage: StoryEnvironment) -> bool:
    return not await stage.guests()


def _each(found: Counter[str]) -> dict[str, float]:
    return {name: count / MACHINES for name, count in found.items()}


def _over(each: dict[str, float], limits: dict[str, float]) -> dict[str, float]:
    return {name: each[name] for name, limit in limits.items() if each.get(name, 0) > limit}


def test_a_machine_costs_a_limited_number_of_requests_and_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts, handle = Counts(), Worker.handle

    async def counted(worker: Worker, item: Item) -> None:
        counts.seen[f"passes of {worker.controller.name}"] += 1
        await handle(worker, item)

    monkeypatch.setattr(Worker, "handle", counted)
    each, deletion = run_virtual(_measure(counts))
    requests = {name: n for name, n in each.items() if not name.startswith("passes")}
    each["reads"] = sum(n for name, n in requests.items() if name.startswith("GET"))
    each["writes"] = sum(n for name, n in requests.items() if not name.startswith("GET"))
    assert not _over(each, LIMITS), sorted(each.items())
    assert not _over(deletion, DELETION_LIMITS), sorted(deletion.items())
