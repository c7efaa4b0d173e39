"""``moxwell sim``: runs the Proxmox VE simulator on this machine."""

from pathlib import Path

import typer

LAB_WORLD = Path(__file__).parents[1] / "lab" / "proxmox" / "worlds" / "lab.yaml"


def sim(
    world: Path = typer.Option(LAB_WORLD, help="World file (YAML).", show_default="two regions"),
    host: str = typer.Option("127.0.0.1", help="Address to listen on."),
    state: Path | None = typer.Option(
        None, help="State file: loaded if it exists, written at the end."
    ),
    certificates: Path = typer.Option(
        Path(".moxwell-sim"), help="Directory of the CA and server certificate; created if missing."
    ),
    plain: bool = typer.Option(False, "--plain", help="HTTP instead of HTTPS."),
    seed: int = typer.Option(0, help="Seed of the random number generators."),
) -> None:
    """Serve a simulated Proxmox VE API for every node of every region in a world file."""
    import asyncio

    from moxwell.errors import Missing
    from moxwell.lab.proxmox import simulator

    if not world.is_file():
        raise Missing(f"world file {world} does not exist")
    running = simulator.run_sim(
        world,
        host=host,
        state=state,
        certificates=certificates,
        plain=plain,
        seed=seed,
        echo=typer.echo,
    )
    asyncio.run(running)
