"""``moxwell sim``: runs the Proxmox VE simulator on this machine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from moxwell.cli.dataclass_options import command

WORLDS = Path(__file__).parents[1] / "lab" / "proxmox" / "worlds"
WORLD = "World file (YAML), or the name of a built-in one: lab (two regions), bare (a new Proxmox)."
GUESTS = "Let guests read their bootstrap ISO and join as nodes; no program runs in them."


@dataclass(frozen=True, slots=True, kw_only=True)
class SimFlags:
    """The flags of ``moxwell sim``."""

    world: Annotated[str, typer.Option(help=WORLD)] = "lab"
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    state: Annotated[
        Path | None, typer.Option(help="State file: loaded if it exists, written at the end.")
    ] = None
    certificates: Annotated[
        Path, typer.Option(help="Directory of the CA and server certificate; created if missing.")
    ] = Path(".moxwell-sim")
    plain: Annotated[bool, typer.Option("--plain", help="HTTP instead of HTTPS.")] = False
    guests: Annotated[bool, typer.Option("--guests", help=GUESTS)] = False
    seed: Annotated[int, typer.Option(help="Seed of the random number generators.")] = 0

    def world_file(self) -> Path:
        """The file that ``world`` names."""
        from moxwell.errors import Missing

        built_in = WORLDS / f"{Path(self.world).name}.yaml"
        found = built_in if self.world == built_in.stem and built_in.exists() else Path(self.world)
        if not found.is_file():
            raise Missing(f"world file {self.world} does not exist")
        return found


@command(SimFlags)
def sim(flags: SimFlags) -> None:
    """Serve a simulated Proxmox VE API for every node of every region in a world file."""
    import asyncio

    flags.world_file()
    asyncio.run(_serve(flags))


async def _serve(flags: SimFlags) -> None:
    from contextlib import AsyncExitStack

    from moxwell.app.simulated_guests import simulated_guests
    from moxwell.clock import SystemClock
    from moxwell.lab.proxmox import simulator
    from moxwell.lab.proxmox.guest import GuestOs

    async with AsyncExitStack() as stack:
        system: GuestOs | None = None
        if flags.guests:
            planes = flags.certificates / "control-planes"
            disks = flags.state.with_name(f"{flags.state.name}.guests") if flags.state else None
            system = await stack.enter_async_context(simulated_guests(planes, disks, SystemClock()))
        await simulator.run_sim(
            flags.world_file(),
            host=flags.host,
            state=flags.state,
            certificates=flags.certificates,
            plain=flags.plain,
            seed=flags.seed,
            guest_os=system,
            echo=typer.echo,
        )
