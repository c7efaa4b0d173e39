"""``python -m …balancer HOST PORT CA-FILE BACKEND…``: balances one port until terminated."""

import asyncio
import contextlib
import signal
import sys

from moxwell.embedded.controlplanes.balancer.balancer import Balancer


async def main(host: str, port: str, ca: str, *backends: str) -> None:
    task = asyncio.ensure_future(Balancer(host, int(port), ca, backends).run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
