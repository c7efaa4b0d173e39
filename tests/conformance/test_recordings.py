"""
Replays recordings of a real Proxmox VE API against the simulator.

``replay.py`` is a separate program that sends HTTP requests to the simulator in real time. The
world files describe the same clusters as ``recordings/world.json`` and ``world2.json``, with short
durations.
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
PARALLEL = 3  # scenarios that run at the same time
SERIAL_AREAS = {"machine", "cluster", "firewall"}


def batches(version: str) -> tuple[list[list[Path]], list[Path]]:
    """Parallel batches of scenarios, and the scenarios that must run alone."""
    files = sorted((RECORDINGS / version).glob("*.json"))
    serial = [f for f in files if json.loads(f.read_text())["area"] in SERIAL_AREAS]
    rest = [f for f in files if f not in serial]
    return [rest[n::PARALLEL] for n in range(PARALLEL)], serial


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
        pytest.param("8.4", 99.0, id="three nodes of 8.4 agree in 99 of 100 steps"),
        pytest.param("9.2", 99.0, id="one node of 9.2 agrees in 99 of 100 steps"),
    ],
)
async def test_recordings_agree(version: str, least: float) -> None:
    clock = SystemClock()
    world = load_world(HERE / "worlds" / f"pve-{version}.yaml", clock.now().timestamp())
    simulator = Simulator(world, clock)
    await simulator.start()
    try:
        parallel, serial = batches(version)
        reports = list(await asyncio.gather(*(replay(simulator.url(), f) for f in parallel)))
        reports.append(await replay(simulator.url(), serial))
    finally:
        await simulator.stop()
    agree, total = (sum(r[k] for r in reports) for k in ("agree", "total"))
    score = 100 * agree / total
    print(f"\n{version}: {agree} of {total} steps agree ({score:.1f} %)\n{describe(reports)}")  # noqa: T201
    assert score >= least, describe(reports)
