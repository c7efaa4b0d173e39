"""
The recordings of a genuine Proxmox VE, replayed against the simulator by the tool they came with.

``replay.py`` is a program of its own: it talks HTTP to the simulator, in real time.
The worlds say the same as ``recordings/world.json`` and ``world2.json``, with a quick pace.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from moxwell.clock import SystemClock
from moxwell.lab.proxmox.simulator import Simulator
from moxwell.lab.proxmox.world import load_world

HERE = Path(__file__).parent
RECORDINGS = HERE / "recordings"
LANES = 3  # scenarios side by side
ALONE = {"machine", "cluster", "firewall"}  # areas that must not run beside others


def lanes(version: str) -> tuple[list[list[Path]], list[Path]]:
    """Scenarios that may run side by side, dealt to lanes, and those that may not."""
    files = sorted((RECORDINGS / version).glob("*.json"))
    alone = [f for f in files if json.loads(f.read_text())["area"] in ALONE]
    rest = [f for f in files if f not in alone]
    return [rest[n::LANES] for n in range(LANES)], alone


async def replay(url: str, files: list[Path]) -> dict[str, Any]:
    tool = [sys.executable, str(RECORDINGS / "replay.py"), "check", "--json", "--patience", "30"]
    command = [*tool, "--url", url, "--password", "secret", *map(str, files)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    report: dict[str, Any] = json.loads(out)
    return report


def describe(reports: list[dict[str, Any]]) -> str:
    lines = []
    for report in reports:
        for file in report["files"]:
            for problem in file["problems"]:
                first = problem["differences"][0]
                lines.append(f"{file['scenario']} #{problem['step']} {problem['do']}: {first}")
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    "version, least",
    [
        pytest.param("8.4", 98.0, id="three nodes of 8.4 agree in 98 of 100 steps"),
        pytest.param("9.2", 95.0, id="one node of 9.2 agrees in 95 of 100 steps"),
    ],
)
async def test_recordings_agree(version: str, least: float) -> None:
    clock = SystemClock()
    world = load_world(HERE / "worlds" / f"pve-{version}.yaml", clock.now().timestamp())
    simulator = Simulator(world, clock)
    await simulator.start()
    try:
        beside, alone = lanes(version)
        reports = list(await asyncio.gather(*(replay(simulator.url(), f) for f in beside)))
        reports.append(await replay(simulator.url(), alone))
    finally:
        await simulator.stop()
    agree, total = (sum(r[k] for r in reports) for k in ("agree", "total"))
    score = 100 * agree / total
    print(f"\n{version}: {agree} of {total} steps agree ({score:.1f} %)\n{describe(reports)}")  # noqa: T201
    assert score >= least, describe(reports)
