"""
Makes or removes a template in one region while a command waits, and reports the progress.

It repeats observing, planning and performing until nothing is left to do, as the controller does.
An interrupted command is completed by the same command. Tasks of all hosts run at the same time.
"""

import asyncio
from collections.abc import Callable

from moxwell.clock import Clock
from moxwell.controllers.infra.template_build.bake import BakeFailed
from moxwell.controllers.infra.template_build.design import TemplateDesign
from moxwell.controllers.infra.template_build.failures import explained
from moxwell.controllers.infra.template_build.observed import ObservedBuild
from moxwell.controllers.infra.template_build.plan import (
    BuildMove,
    BuildPlan,
    plan_build,
    plan_discard,
    plan_removal,
)
from moxwell.controllers.infra.template_build.see import observe
from moxwell.errors import Conflict, MoxwellError, Retryable
from moxwell.pve.regions import Region
from moxwell.pve.values import Upid

WAIT_SECONDS = 2.0
PROGRESS_SECONDS = 5.0
MAX_REPETITIONS = 5
LIST_ATTEMPTS = 10


class TemplateInUse(Conflict):
    """Linked clones use the disks of a template."""

    reason = "TemplateInUse"


class BuildStalled(Retryable):
    """Proxmox reports success, but its answers do not show the result."""

    reason = "BuildStalled"


class TemplateBuilder:
    """Builds and removes templates in one region, whose task poller must run."""

    def __init__(self, region: Region, clock: Clock, report: Callable[[str], None]) -> None:
        self._region, self._clock, self._report = region, clock, report
        self._reported: set[str] = set()

    async def build(self, design: TemplateDesign) -> BuildPlan:
        """
        Make the template on every host that needs it; returns the complete plan.

        If a builder guest fails, what was made is removed; the log is in the error.
        """
        try:
            plan = await self._repeat(design, plan_build)
        except BakeFailed:
            await self._repeat(design, plan_discard)
            raise
        await self._wait_listed(plan)
        return plan

    async def _wait_listed(self, plan: BuildPlan) -> None:
        """
        Wait until Proxmox lists the copies as templates, up to ten seconds after their conversion.

        Commands that follow choose templates by that list; the inventory here knows of the
        conversion already.
        """
        for _ in range(LIST_ATTEMPTS):
            rows = await self._region.reader.cluster.resources("vm")
            listed = {row.vmid for row in rows if row.template}
            if listed.issuperset(copy.vmid for copy in plan.complete):
                return
            self._say(f"{self._region.name}: waiting until Proxmox lists the template")
            await self._clock.sleep(WAIT_SECONDS)

    async def remove(self, design: TemplateDesign) -> BuildPlan:
        """Remove every copy and image file; ``TemplateInUse`` if linked clones need a copy."""
        plan = await self._repeat(design, plan_removal)
        if plan.in_use:
            copies = "; ".join(
                f"{c.vmid} on {c.host} is used by {', '.join(map(str, c.linked_clones))}"
                for c in plan.in_use
            )
            raise TemplateInUse(f"template {copies}: delete these guests first")
        return plan

    async def _repeat(
        self, design: TemplateDesign, decide: Callable[[TemplateDesign, ObservedBuild], BuildPlan]
    ) -> BuildPlan:
        last: tuple[tuple[str, str], ...] = ()
        repeated = 0
        while True:
            await self._region.inventory.refresh()
            seen = await observe(self._region, design, removing=decide is not plan_build)
            plan = decide(design, seen)
            if plan.done:
                return plan
            moves = tuple((move.host, move.text) for move in plan.moves)
            repeated = repeated + 1 if moves and moves == last else 0
            last = moves
            if repeated:
                _refuse_repetition(moves, repeated)
                await self._clock.sleep(WAIT_SECONDS)
            if moves:
                await asyncio.gather(*(self._perform(move) for move in plan.moves))
                continue
            for text in plan.waiting:
                self._say(text)
            await self._clock.sleep(WAIT_SECONDS)

    async def _perform(self, move: BuildMove) -> None:
        where = f"{self._region.name}/{move.host}"
        self._report(f"{where}: {move.text}")
        try:
            upid = await self._region.perform(move.step, move)
            if upid is None:
                return
            await self._follow(upid, where)
        except MoxwellError as error:
            raise explained(error, where) from error

    async def _follow(self, upid: Upid, where: str) -> None:
        """Wait for a task and report the last line of its log now and then."""
        ended = asyncio.create_task(self._region.tasks.wait_ended(upid))
        try:
            while not ended.done():
                await asyncio.wait([ended], timeout=PROGRESS_SECONDS)
                if not ended.done():
                    await self._progress(upid, where)
        finally:
            ended.cancel()
        error = ended.result().error
        if error is not None:
            raise error

    async def _progress(self, upid: Upid, where: str) -> None:
        try:
            lines = [line for line in await self._region.reader.tasks.log(upid, limit=500) if line]
        except MoxwellError:
            return  # progress is for information; the end of the task is what counts
        if lines:
            self._say(f"{where}: {lines[-1].strip()}")

    def _say(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self._report(text)


def _refuse_repetition(moves: tuple[tuple[str, str], ...], repeated: int) -> None:
    """Raise if the same moves were performed several times without effect."""
    if repeated >= MAX_REPETITIONS:
        done = "; ".join(f"{host}: {text}" for host, text in moves)
        raise BuildStalled(
            f"{done}: done {repeated} times, but Proxmox does not show the result: check the "
            "privileges of the token with `moxwell doctor`"
        )
