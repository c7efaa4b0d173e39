"""``moxwell sim``: a simulated Proxmox VE that listens on this machine."""

from pathlib import Path

import typer

LAB = Path(__file__).parents[1] / "lab" / "proxmox" / "worlds" / "lab.yaml"


def sim(
    world: Path = typer.Option(LAB, help="World file (YAML).", show_default="a lab of two regions"),
    host: str = typer.Option("127.0.0.1", help="Address to listen on."),
    state: Path | None = typer.Option(
        None, help="Resume from this file, and save to it at the end."
    ),
    certificates: Path = typer.Option(
        Path(".moxwell-sim"), help="Folder of the CA and server certificate; made if missing."
    ),
    plain: bool = typer.Option(False, "--plain", help="HTTP instead of HTTPS."),
    seed: int = typer.Option(0, help="Seed of everything that is left to chance."),
) -> None:
    """Simulate Proxmox VE: the API of every node of every region in a world file."""
    import asyncio

    from moxwell.errors import Missing
    from moxwell.lab.proxmox import simulator

    if not world.is_file():
        raise Missing(f"there is no world file {world}")
    running = simulator.run_sim(
        world,
        host=host,
        state=state,
        certificates=certificates,
        plain=plain,
        seed=seed,
        say=typer.echo,
    )
    asyncio.run(running)
