"""
How a command reaches a running Moxwell, and the options that all commands share.

The environment is read here and nowhere else in the command line. A command that needs a daemon and
finds none says which command starts one.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from moxwell.app.state_dir import Facts, Home
from moxwell.cli.output import Output
from moxwell.clock import SystemClock
from moxwell.errors import Unreachable

if TYPE_CHECKING:  # a command that asks nobody need not load a web client
    from moxwell.kube.client import Kube
    from moxwell.kube.transport import HttpTransport

Name = Annotated[
    str, typer.Option("--name", envvar="MOXWELL_NAME", help="Which instance of Moxwell.")
]
Format = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the object.")]
DEFAULT_NAME = "lab"


class NotRunning(Unreachable):
    """No daemon answers."""

    reason = "NotRunning"


def home(name: str) -> Home:
    """The folder of an instance."""
    return Home(name, os.environ)


def facts(name: str) -> Facts:
    """What a running instance says, or what to do where none runs."""
    found = home(name).facts()
    if found is None:
        raise NotRunning(f"instance {name!r} is not running: start it with `moxwell up`")
    return found


@asynccontextmanager
async def transport(name: str) -> AsyncIterator["HttpTransport"]:
    """The way to an instance's API: the embedded one."""
    from moxwell.kube import kubeconfig
    from moxwell.kube.transport import HttpTransport

    facts(name)
    access = kubeconfig.load([home(name).kubeconfig]).access(SystemClock(), os.environ)
    async with HttpTransport(access) as made:
        yield made


@asynccontextmanager
async def kube(name: str) -> AsyncIterator["Kube"]:
    """A client of an instance's API."""
    from moxwell.kube.client import Kube

    async with transport(name) as made:
        yield Kube(made)
