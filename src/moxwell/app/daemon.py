"""
The daemon process: starts an instance and stops it on SIGTERM or SIGINT.

On a signal the controllers finish their passes, then the API server closes, then the lab saves.
"""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack

import structlog

from moxwell.app.launch_options import LaunchOptions
from moxwell.app.standalone import Instance
from moxwell.app.state_dir import StateDir
from moxwell.clock import SystemClock
from moxwell.embedded.controlplanes.processes import heap, limits
from moxwell.runtime import log as logging

log = structlog.get_logger(__name__)


async def run(options: LaunchOptions, environ: Mapping[str, str], *, supervisor: int = 0) -> None:
    """
    Run until a signal arrives; Busy if the instance runs already.

    ``supervisor`` is the PID of the parent that holds the lock; the daemon ends with it.
    """
    state = StateDir(options.name, environ)
    if supervisor:
        limits.end_with_parent(supervisor)
        state.withdraw()  # a child that crashed has left it
    else:
        state.acquire()
    logging.configure(form="console", rotate=state.log)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as stack:
        stack.callback(state.withdraw)
        instance = await Instance.start(stack, state, SystemClock(), options)
        state.publish(instance.info(supervisor or os.getpid()))
        heap.settle()
        log.info("daemon started", name=options.name, mode=instance.mode)
        await instance.run(stopping)
    log.info("daemon stopped", name=options.name)
