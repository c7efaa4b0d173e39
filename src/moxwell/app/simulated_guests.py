"""Runs the operating systems of the guests of ``moxwell sim --guests`` beside its hosts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from moxwell.atomic_file import write_private
from moxwell.clock import Clock
from moxwell.embedded.controlplanes.machine_control_planes import MachineControlPlanes
from moxwell.kube.transport import KubeTransport
from moxwell.lab.guests.guest_runner import GuestRunner


@asynccontextmanager
async def simulated_guests(
    folder: Path, state: Path | None, clock: Clock
) -> AsyncIterator[GuestRunner]:
    """
    Guests that read their bootstrap ISO and join as nodes while the block runs.

    ``folder`` has the API servers of control planes on guests. What the disks of guests contain is
    loaded from ``state`` if that file exists, and written to it at the end.
    """
    planes = MachineControlPlanes(folder, clock)
    guests = GuestRunner(KubeTransport, clock, control_planes=planes)
    if state is not None and (saved := await asyncio.to_thread(_read, state)):
        guests.load(saved)
    running = [asyncio.create_task(guests.run()), asyncio.create_task(planes.run())]
    try:
        yield guests
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if state is not None:
            write_private(state, guests.save())


def _read(state: Path) -> bytes:
    return state.read_bytes() if state.exists() else b""
