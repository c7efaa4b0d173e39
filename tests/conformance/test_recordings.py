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
LANES = 4  # that run at the same time
SAME_LANE = {"download": "storage"}  # both list the files of one storage
SERIAL_AREAS = {"machine", "cluster", "inventory"}  # see what other scenarios do


def steps(files: list[Path]) -> int:
    return sum(len(json.loads(file.read_text())["steps"]) for file in files)


def lanes(version: str) -> tuple[list[list[Path]], list[Path]]:
    """Lanes of about the same length, and the scenarios that must run alone.

    Scenarios of one area are in one lane, as they may see each other's rules and zones.
    """
    areas: dict[str, list[Path]] = {}
    for file in sorted((RECORDINGS / version).glob("*.json")):
        area = json.loads(file.read_text())["area"]
        areas.setdefault(SAME_LANE.get(area, area), []).append(file)
    serial = [file for area in sorted(SERIAL_AREAS) for file in areas.pop(area, [])]
    found: list[list[Path]] = [[] for _ in range(LANES)]
    for files in sorted(areas.values(), key=steps, reverse=True):
        min(found, key=steps).extend(files)
    return found, serial


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
        parallel, serial = lanes(version)
        reports = [await replay(simulator.url(), serial)]
        reports += await asyncio.gather(*(replay(simulator.url(), f) for f in parallel))
    finally:
        await simulator.stop()
    agree, total = (sum(r[k] for r in reports) for k in ("agree", "total"))
    score = 100 * agree / total
    print(f"\n{version}: {agree} of {total} steps agree ({score:.1f} %)\n{describe(reports)}")  # noqa: T201
    assert score >= least, describe(reports)
