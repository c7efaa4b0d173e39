"""
How an instance was asked to run: what ``up`` writes down and the daemon reads.

Light on purpose: the command that starts a daemon must not load what only the daemon needs.
"""

from pathlib import Path

import msgspec

from moxwell.app.home import Home
from moxwell.errors import Missing
from moxwell.pve import config


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """How an instance was asked to run."""

    name: str
    config: str = ""  # a file with regions; none: the lab
    world: str = ""  # another world for the lab


def check(wish: Wish) -> None:
    """Refuse at once what cannot work, before anything is started."""
    Home(wish.name, {"HOME": "/"})
    if wish.config:
        if not Path(wish.config).is_file():
            raise Missing(f"there is no configuration file {wish.config}")
        config.load(Path(wish.config))
    if wish.world and not Path(wish.world).is_file():
        raise Missing(f"there is no world file {wish.world}")
