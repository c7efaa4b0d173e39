"""
Runs ``moxwell operator``, ``csi`` and ``cni`` in a process without the modules of the command line.

A command that has parsed its flags replaces itself with such a process, which gets the options as
JSON in an argument. The parser of flags, and rich, which structlog loads for tracebacks on a
terminal, need 10 MiB that a controller would keep as long as it runs.
"""

import asyncio
import os
import sys
from asyncio import sslproto
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from moxwell.errors import MoxwellError

T = TypeVar("T")
ENVIRONMENT: Mapping[str, str] = {
    "MALLOC_ARENA_MAX": "1"
}  # threads take turns anyway; each arena would need memory
NOT_NEEDED = ("rich", "greenlet")  # structlog does without them
TLS_BUFFER = 16 << 10  # bytes: one TLS record; asyncio allocates 256 KiB for each connection
OPERATOR, CSI_CONTROLLER, CSI_NODE, CNI = "operator", "csi-controller", "csi-node", "cni"


def replace_by(service: str, *arguments: object) -> NoReturn:
    """Run a service in this process instead of the command; the arguments hold no secrets."""
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, "-P", "-m", __name__, service, encode(*arguments)]
    os.execve(sys.executable, command, {**ENVIRONMENT, **os.environ})


def encode(*arguments: object) -> str:
    """The arguments of a service as text."""
    return msgspec.json.encode(arguments, enc_hook=str).decode()


def decode(text: str, type_: type[T]) -> T:
    """The arguments of a service."""
    return msgspec.json.decode(text, type=type_, dec_hook=lambda wanted, value: wanted(value))


def main() -> None:
    """Run the service that the arguments name until a signal ends it."""
    save_memory()
    services = {
        OPERATOR: _operator,
        CSI_CONTROLLER: _csi_controller,
        CSI_NODE: _csi_node,
        CNI: _cni,
    }
    service, text = sys.argv[1:]
    try:
        services[service](text)
    except MoxwellError as error:
        print(f"error: {error}  ({error.reason})", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def save_memory() -> None:
    """Import no optional packages, and give TLS connections smaller buffers."""
    sys.modules.update(dict.fromkeys(NOT_NEEDED))  # type: ignore[arg-type]
    sslproto.SSLProtocol.max_size = TLS_BUFFER


def _operator(text: str) -> None:
    from moxwell.app.operator import OperatorOptions, run
    from moxwell.clock import SystemClock
    from moxwell.runtime import log

    options, level = decode(text, tuple[OperatorOptions, str])
    log.configure(form="json", level=level)
    asyncio.run(run(options, SystemClock(), os.environ))


def _csi_controller(text: str) -> None:
    from moxwell.cli.kube_connection import connected
    from moxwell.csi.main import ControllerOptions, run_controller

    options, standalone, kubeconfig = decode(text, tuple[ControllerOptions, bool, Path | None])

    async def run() -> None:
        if standalone:
            await run_controller(options, None)
            return
        async with connected(kubeconfig) as kube:
            await run_controller(options, kube)

    serve(run())


def _csi_node(text: str) -> None:
    from moxwell.cli.kube_connection import connected
    from moxwell.csi.main import NodeOptions, run_node

    options, standalone, kubeconfig = decode(text, tuple[NodeOptions, bool, Path | None])

    async def run() -> None:
        if standalone:
            await run_node(options, None)
            return
        async with connected(kubeconfig) as kube:
            await run_node(options, kube)

    serve(run())


def _cni(text: str) -> None:
    from moxwell.cli.kube_connection import connected
    from moxwell.clock import SystemClock
    from moxwell.cni.main import CniOptions, run_cni

    options, kubeconfig = decode(text, tuple[CniOptions, Path | None])

    async def run() -> None:
        async with connected(kubeconfig) as kube:
            await run_cni(options, kube, SystemClock())

    serve(run())


def serve(work: Coroutine[Any, Any, None]) -> None:
    """Run until a signal arrives; an error of ours is raised without its exception group."""
    from moxwell.csi.endpoint import run_until_signal
    from moxwell.runtime import log

    log.configure(form="json", level=os.environ.get("LOG_LEVEL", "info"))
    try:
        asyncio.run(run_until_signal(work))
    except ExceptionGroup as group:
        known = group.subgroup(MoxwellError)
        if known is None:
            raise
        raise _first(known) from group


def _first(group: BaseException) -> BaseException:
    """The first exception of a group."""
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


if __name__ == "__main__":
    main()
