"""``moxwell init``: connects Moxwell with Proxmox clusters and writes the configuration."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moxwell.cli.dataclass_options import command

if TYPE_CHECKING:
    from moxwell.onboarding.access_plan import AccessRequest
    from moxwell.onboarding.certificate import ServerCertificate

PASSWORD = "MOXWELL_ADMIN_PASSWORD"
ADDRESS = (
    "Address of this machine that nodes connect to; by default the one with the route to the "
    "Proxmox host."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitFlags:
    """The flags of ``moxwell init``."""

    url: Annotated[str, typer.Option(help="URL of a Proxmox host: https://pve1:8006.")] = ""
    region: Annotated[str, typer.Option(help="Name of this Proxmox cluster.")] = ""
    config: Annotated[Path, typer.Option(help="Configuration file.")] = Path("moxwell.yaml")
    admin: Annotated[
        str, typer.Option(help=f"Administrator who logs in once; ${PASSWORD} or a prompt.")
    ] = "root@pam"
    user: Annotated[str, typer.Option(help="User of Moxwell in Proxmox.")] = "moxwell@pve"
    token: Annotated[str, typer.Option(help="Name of its API token.")] = "moxwell"
    pool: Annotated[str, typer.Option(help="Limit Moxwell to the guests of this pool.")] = ""
    feature: Annotated[
        list[str] | None, typer.Option(help="Feature that gets its privileges; may be repeated.")
    ] = None
    fingerprint: Annotated[str, typer.Option(help="SHA-256 of the certificate to accept.")] = ""
    print_commands: Annotated[
        bool, typer.Option("--print", help="Print the pveum commands and change nothing.")
    ] = False
    address: Annotated[str, typer.Option(help=ADDRESS)] = ""
    release: Annotated[int, typer.Option(help="Major release of Proxmox VE, for --print.")] = 9

    def request(self) -> "AccessRequest":
        """The access that is wanted; names that Proxmox refuses are refused."""
        from moxwell.onboarding import access_plan

        features = access_plan.chosen_features(self.feature)
        found = access_plan.AccessRequest(self.release, self.user, self.token, features, self.pool)
        found.check()
        return found


@command(InitFlags)
def init(flags: InitFlags) -> None:
    """Connect Proxmox clusters: create role, user and token, write the configuration, check."""
    from moxwell.onboarding import access_plan

    request = flags.request()
    if flags.print_commands:
        typer.echo("\n".join(access_plan.commands(request)))
        return
    _connect(flags, request, flags.url, flags.region)
    while not flags.url and typer.confirm("Connect another Proxmox cluster?"):
        _connect(flags, request, "", "")
    typer.echo(f"Next: moxwell up --config {flags.config}")


def _connect(flags: InitFlags, request: "AccessRequest", url: str, region: str) -> None:
    """Connect one Proxmox cluster; the password of its administrator is not stored."""
    from moxwell.clock import SystemClock
    from moxwell.onboarding import certificate
    from moxwell.onboarding.connect import AdminLogin, connect
    from moxwell.pve.values import SecretValue

    url = certificate.normalized_url(url or typer.prompt("URL of a Proxmox host"))
    region = region or typer.prompt("Name of this Proxmox cluster", default="proxmox")
    pinned = _confirmed(asyncio.run(certificate.fetch_certificate(url)), flags.fingerprint)
    question = f"Password of {flags.admin}"
    password = os.environ.get(PASSWORD) or typer.prompt(question, hide_input=True)
    login = AdminLogin(region, url, flags.admin, SecretValue(password), pinned)
    asyncio.run(connect(login, request, flags.config, SystemClock(), typer.echo))
    _set_address(flags.config, url, flags.address)
    typer.echo(f"Region {region} is in {flags.config}.")
    _check(flags.config, region, request)


def _check(config: Path, region: str, request: "AccessRequest") -> None:
    """Print the checks of the region with its new token."""
    from moxwell.cli.output import Progress
    from moxwell.cli.preflight import show_checks
    from moxwell.clock import SystemClock
    from moxwell.onboarding.connect import check_configured
    from moxwell.preflight import probe
    from moxwell.preflight.outcome import could_make_cluster

    checks = asyncio.run(
        check_configured(config, region, request.features, SystemClock(), probe.answers)
    )
    show_checks(checks, Progress())
    if not could_make_cluster(checks):
        typer.echo(f"Region {region} cannot have a cluster yet: correct what failed above.")


def _set_address(config: Path, url: str, address: str) -> None:
    """Let control planes listen where the guests of the region can reach them."""
    from moxwell.onboarding.config_file import set_control_plane_address
    from moxwell.onboarding.local_address import local_address

    address = address or asyncio.run(local_address(url))
    if address and set_control_plane_address(config, address):
        typer.echo(f"Control planes of clusters listen on {address} (control_planes in {config}).")


def _confirmed(shown: "ServerCertificate", expected: str) -> str:
    """Return the fingerprint to pin; empty if a known authority signed the certificate."""
    from moxwell.errors import Denied

    typer.echo(f"Certificate of {shown.subject}, issued by {shown.issuer}, until {shown.not_after}")
    typer.echo(f"SHA-256 fingerprint {shown.printed}")
    wanted = expected.replace(":", "").lower()
    if wanted and wanted != shown.fingerprint:
        raise Denied("the certificate does not match --fingerprint; nothing was sent")
    if shown.trusted or wanted:
        return "" if shown.trusted and not wanted else shown.fingerprint
    question = "No known authority signed it. Does the Proxmox web interface show this fingerprint?"
    if not typer.confirm(question):
        raise Denied("the certificate was not confirmed; nothing was sent")
    return shown.fingerprint
