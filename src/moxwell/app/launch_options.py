"""
How an instance was asked to run: what ``up`` writes down and the daemon reads.

Light on purpose: the command that starts a daemon must not load what only the daemon needs.
"""

from pathlib import Path

import msgspec

from moxwell.app.state_dir import Facts, Home
from moxwell.errors import Missing
from moxwell.pve import config

WORDS = ("", "no", "installed")


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """How an instance was asked to run."""

    name: str
    config: str = ""  # a file with regions; none: the lab
    world: str = ""  # another world for the lab
    genuine: str = ""  # programs for tenants: "installed", a folder, or "no"; none: as last time


def settled(wish: Wish, before: Wish | None) -> Wish:
    """What was not said is as the configuration has it, else as it was last time."""
    if wish.genuine:
        return wish
    told = config.genuine_planes(Path(wish.config)) if wish.config else ""
    return msgspec.structs.replace(wish, genuine=told or (before.genuine if before else ""))


def unheard(wish: Wish, facts: Facts) -> str:
    """What a running instance does not do although it is asked for; empty: it does all."""
    asked = {
        "--config": wish.config and wish.config != facts.config,
        "--world": wish.world and wish.world != facts.world,
        "--genuine-planes": wish.genuine and _host(wish.genuine) != _host(facts.genuine),
    }
    named = [option for option, differs in asked.items() if differs]
    if not named:
        return ""
    verb = "waits" if len(named) == 1 else "wait"
    return (
        f"{' and '.join(named)} {verb} for the next start: `moxwell down`, then this command again"
    )


def _host(genuine: str) -> str:
    return genuine or "no"


def check(wish: Wish) -> None:
    """Refuse at once what cannot work, before anything is started."""
    Home(wish.name, {"HOME": "/"})
    if wish.config:
        if not Path(wish.config).is_file():
            raise Missing(f"there is no configuration file {wish.config}")
        config.load(Path(wish.config))
        config.genuine_planes(Path(wish.config))
    if wish.genuine not in WORDS and not Path(wish.genuine).is_dir():
        raise Missing(f"there is no folder {wish.genuine} with programs for control planes")
    if wish.world and not Path(wish.world).is_file():
        raise Missing(f"there is no world file {wish.world}")
