"""Connects a Proxmox cluster: makes the access, checks the token, writes the configuration."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from moxwell.clock import Clock
from moxwell.errors import Invalid
from moxwell.onboarding import access, config_file
from moxwell.onboarding.access_plan import AccessChange, AccessRequest, acl_path, wanted_roles
from moxwell.preflight.checks import check_region
from moxwell.preflight.facts import Answers, read_facts
from moxwell.preflight.outcome import RegionCheck, RegionNeeds
from moxwell.pve import config as pve_config
from moxwell.pve import preflight
from moxwell.pve.audit import AuditRecord
from moxwell.pve.client import PveReader
from moxwell.pve.config import PasswordAuth, RegionConfig, TokenAuth
from moxwell.pve.effects import Effects
from moxwell.pve.preflight import Feature
from moxwell.pve.transport import PveHttpTransport
from moxwell.pve.values import SecretValue

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class AdminLogin:
    """The login of an administrator; it is used once and not stored."""

    region: str
    url: str
    user: str
    password: SecretValue
    fingerprint: str = ""

    def config(self, auth: PasswordAuth | TokenAuth | None = None) -> RegionConfig:
        """The region with this login, or with another one."""
        return RegionConfig(
            region=self.region,
            urls=(self.url,),
            auth=auth or PasswordAuth(self.user, self.password),
            fingerprint=self.fingerprint,
        )


class PrintedAudit:
    """Records nothing: each change is printed before it is made."""

    def record(self, record: AuditRecord) -> None:
        """The administrator reads along."""


async def connect(
    login: AdminLogin, request: AccessRequest, path: Path, clock: Clock, say: Say
) -> None:
    """Make what is missing; a second run changes nothing."""
    transport = PveHttpTransport(login.config(), clock)
    try:
        version = await PveReader(transport).version()
        request = replace(request, major=version.major)
        secret = await _secret(transport, request, path, login.region, say)
    finally:
        await transport.close()
    if secret is None:
        return
    say(await check_token(login, request, secret, clock))
    entry = config_file.region_entry(
        login.region, login.url, request.token_id, secret.reveal(), login.fingerprint, request.pool
    )
    config_file.add_region(path, entry)


async def check_configured(
    path: Path, region: str, features: tuple[Feature, ...], clock: Clock, answers: Answers
) -> tuple[RegionCheck, ...]:
    """Check a region of the configuration with its token."""
    config = next(each for each in pve_config.load(path) if each.region == region)
    transport = PveHttpTransport(config, clock)
    try:
        facts = await read_facts(PveReader(transport), config, clock, answers)
    finally:
        await transport.close()
    return check_region(facts, RegionNeeds(features, config.pool))


async def _secret(
    transport: PveHttpTransport, request: AccessRequest, path: Path, region: str, say: Say
) -> SecretValue | None:
    """Make the access; None if the token exists and its secret is in the configuration."""
    effects = Effects(PrintedAudit())
    secret = await access.make_access(transport, effects, request, lambda c: say(_line(c)))
    if secret is not None:
        return secret
    if region in config_file.known_regions(path):
        say(f"The token {request.token_id} exists and is in {path}.")
        return None
    say(f"The token {request.token_id} exists; its secret is not known, so it is replaced.")
    return await access.renew_token(transport, effects, request)


def _line(change: AccessChange) -> str:
    if change.path:
        return f"  {change.role} for {change.name} on {change.path}"
    return f"  {change.kind} {change.name}"


async def check_token(
    login: AdminLogin, request: AccessRequest, secret: SecretValue, clock: Clock
) -> str:
    """Log in with the token and compare its permissions with what was asked for."""
    own = login.config(TokenAuth(request.token_id, secret))
    transport = PveHttpTransport(own, clock)
    try:
        pve = PveReader(transport)
        version, permissions = await pve.version(), await pve.access.permissions()
    finally:
        await transport.close()
    lacking = [
        f"{privilege} on {acl_path(path, request.pool)}"
        for path, privileges in wanted_roles(request).items()
        for privilege in privileges
        if privilege not in preflight.held(permissions, acl_path(path, request.pool))
    ]
    if lacking:
        raise Invalid(f"the token {request.token_id} lacks {', '.join(lacking)}")
    return f"Proxmox VE {version.version}: the token has all privileges that it needs."
