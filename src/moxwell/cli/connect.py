"""
Connects commands to a running instance, and declares the options that all commands share.

A command that needs a daemon and finds none says which command starts one.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from moxwell.app.command_line import DEFAULT_INSTANCE
from moxwell.app.state_dir import InstanceInfo, StateDir
from moxwell.cli.output import Output
from moxwell.clock import SystemClock
from moxwell.errors import Unreachable

if TYPE_CHECKING:  # commands that send no request need not load an HTTP client
    from moxwell.kube.client import Kube
    from moxwell.kube.transport import KubeTransport

Name = Annotated[str, typer.Option("--name", envvar="MOXWELL_NAME", help="Name of the instance.")]
Format = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the object.")]
DEFAULT_NAME = DEFAULT_INSTANCE


class NotRunning(Unreachable):
    """The daemon of the instance does not run."""

    reason = "NotRunning"


def state(name: str) -> StateDir:
    """The state directory of an instance."""
    return StateDir(name, os.environ)


def info(name: str) -> InstanceInfo:
    """What a running instance serves; NotRunning if it does not run."""
    found = state(name).info()
    if found is None:
        raise NotRunning(f"instance {name!r} is not running: start it with `moxwell up`")
    return found


@asynccontextmanager
async def transport(name: str) -> AsyncIterator["KubeTransport"]:
    """A transport to the API of an instance."""
    from moxwell.kube import kubeconfig
    from moxwell.kube.transport import KubeTransport

    info(name)
    access = kubeconfig.load([state(name).kubeconfig]).access(SystemClock(), os.environ)
    async with KubeTransport(access) as opened:
        yield opened


@asynccontextmanager
async def kube(name: str) -> AsyncIterator["Kube"]:
    """A client of an instance's API."""
    from moxwell.kube.client import Kube

    async with transport(name) as opened:
        yield Kube(opened)
