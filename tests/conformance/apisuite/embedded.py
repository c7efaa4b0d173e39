"""
``python -m apisuite.embedded FOLDER``: runs the embedded API server in its own process.

It writes ``FOLDER/admin.kubeconfig`` when it is ready.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from envtest.process import Process, wait_ready
from moxwell.clock import SystemClock
from moxwell.embedded.apiserver.http import HttpServer
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.pki.folder import CertificateAuthority


async def serve(folder: Path) -> None:
    clock = SystemClock()
    authority = CertificateAuthority(folder, clock.now)
    store = EmbeddedApiServer(
        path=folder / "store.db",
        clock=clock,
        root_ca=authority.certificate.decode(),
        token_key=authority.token_key,
    )
    async with store, HttpServer(store, authority, folder=folder) as http:
        http.write_kubeconfig(folder / "admin.kubeconfig")
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await stop.wait()


def start(folder: Path) -> tuple[Process, Path]:
    """Start the server and wait until it is ready; returns the process and its admin kubeconfig."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "apisuite.embedded", str(folder)]
    paths = os.pathsep.join(str(Path(p).absolute()) for p in sys.path)
    env = {**os.environ, "PYTHONPATH": paths}
    process = Process("embedded", command, folder=folder, env=env)
    config = folder / "admin.kubeconfig"
    wait_ready(process, config.is_file)
    return process, config


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
