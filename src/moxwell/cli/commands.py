"""
The table of all commands.

A command line imports the module of its own command only, because all together take most of the
time of a short command. Help and unknown commands import all of them.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import typer

import moxwell


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or a group of commands if it has a help text of its own, by its module."""

    name: str
    module: str
    function: str = ""  # the name of the command if empty
    help: str = ""
    hidden: bool = False
    style: str = ""  # the module and the class of its parser

    def register(self, app: typer.Typer) -> None:
        """Import the module and add the command."""
        found = importlib.import_module(f"moxwell.cli.{self.module}")
        if self.help:
            app.add_typer(found.app, name=self.name, help=self.help)
            return
        style: dict[str, Any] = {"cls": _parser(self.style)} if self.style else {}
        function = getattr(found, self.function or self.name)
        app.command(self.name, hidden=self.hidden, **style)(function)


COMMANDS = (
    Command("up", "instance", style="optional_values.OptionalValueCommand"),
    Command("init", "init"),
    Command("bootstrap", "bootstrap"),
    Command("down", "instance_stop"),
    Command("status", "status"),
    Command("daemon", "daemon", hidden=True),
    Command("cluster", "cluster_commands", help="Tenant clusters."),
    Command("plan", "plan"),
    Command("explain", "explain"),
    Command("doctor", "doctor"),
    Command("verify", "verify"),
    Command("backup", "database"),
    Command("restore", "database"),
    Command("repair", "database"),
    Command("apply", "objects"),
    Command("get", "get"),
    Command("delete", "objects"),
    Command("edit", "edit"),
    Command("events", "events"),
    Command("logs", "logs"),
    Command("operator", "operator", style="go_flags.GoStyleCommand"),
    Command("cni", "cni"),
    Command("externalgrpc", "externalgrpc"),
    Command("sim", "sim"),
    Command("lab", "lab", help="The simulated Proxmox clusters of the lab."),
    Command("control-plane", "control_plane", help="Programs of control planes."),
    Command("credentials", "credentials", help="Client certificates of an instance."),
    Command("csi", "csi", help="The storage driver's controller and node plugin."),
    Command("template", "template", help="Proxmox templates from cloud images."),
    Command("volume", "volume", help="Kubernetes volumes on Proxmox."),
    Command("export", "export"),
    Command("import", "export", "import_"),
    Command("render", "render", help="Print CRDs and manifests."),
)


def make_app(argv: Sequence[str] = ()) -> typer.Typer:
    """The command line; only with the command that ``argv`` begins with, if there is one."""
    app = typer.Typer(
        name="moxwell",
        help="Proxmox VE clusters as a Kubernetes cloud.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for command in [c for c in COMMANDS if c.name in argv[:1]] or COMMANDS:
        command.register(app)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"moxwell {moxwell.__version__}")
        raise typer.Exit


def root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Proxmox VE clusters as a Kubernetes cloud."""


def _parser(style: str) -> Any:
    module, _, name = style.partition(".")
    return getattr(importlib.import_module(f"moxwell.cli.{module}"), name)
