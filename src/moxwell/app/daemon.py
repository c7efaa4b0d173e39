"""
The daemon: an instance of Moxwell from its first line to its last.

``run`` holds the instance's lock, starts everything in order, says what it offers, and ends on
SIGTERM or SIGINT: controllers finish their passes, the API closes after them, the lab saves itself.
"""

import asyncio
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import structlog

import moxwell
from moxwell.app.home import Home
from moxwell.app.running import Moxwell
from moxwell.clock import SystemClock
from moxwell.errors import Missing
from moxwell.pve import config
from moxwell.runtime import log as logging

log = structlog.get_logger(__name__)


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


async def run(wish: Wish, environ: Mapping[str, str]) -> None:
    """Run until told to end."""
    home = Home(wish.name, environ)
    home.hold()
    logging.configure(form="console")
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with AsyncExitStack() as stack:
        stack.callback(home.silence)
        running = await Moxwell.start(stack, home, SystemClock(), wish.config, wish.world)
        home.say(running.facts(moxwell.__version__))
        log.info("daemon started", name=wish.name, mode=running.mode)
        await running.until(ended)
    log.info("daemon stopped", name=wish.name)
