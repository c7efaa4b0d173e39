"""
The daemon: an instance of Moxwell from its first line to its last.

``run`` holds the instance's lock, starts everything in order, says what it offers, and ends on
SIGTERM or SIGINT: controllers finish their passes, the API closes after them, the lab saves itself.
"""

import asyncio
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack

import structlog

import moxwell
from moxwell.app.launch_options import Wish
from moxwell.app.standalone import Moxwell
from moxwell.app.state_dir import Home
from moxwell.clock import SystemClock
from moxwell.runtime import log as logging

log = structlog.get_logger(__name__)


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
        running = await Moxwell.start(
            stack, home, SystemClock(), wish.config, wish.world, wish.genuine
        )
        home.say(running.facts(moxwell.__version__))
        log.info("daemon started", name=wish.name, mode=running.mode)
        await running.until(ended)
    log.info("daemon stopped", name=wish.name)
