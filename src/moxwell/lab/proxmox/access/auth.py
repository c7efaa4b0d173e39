"""
Authenticates requests: tickets with their CSRF prevention token, and API tokens.

A ticket is ``PVE:user@realm:HEXTIME::signature`` and valid for two hours; the signature is an HMAC
with the region's secret. Every authentication failure has the same message.
"""

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from urllib.parse import unquote

from moxwell.lab.proxmox.errors import PveException
from moxwell.lab.proxmox.state import SimRegion, SimUser

TICKET_LIFETIME, CLOCK_SKEW = 7200, 300
_TICKET = re.compile(r"^PVE:(\S+):([0-9A-F]{8})::(\S+)$")
_CSRF = re.compile(r"^([0-9A-F]{8}):(\S+)$")
_TOKEN = re.compile(r"^PVEAPIToken[ =](.+)$")


class AuthenticationFailure(PveException):
    """
    Status 401 with an empty body; the message is in the reason phrase. The response is delayed.
    """

    def __init__(self, message: str) -> None:
        super().__init__(401, message)


@dataclass(frozen=True, slots=True)
class AuthenticatedCaller:
    user: str
    token: str | None = None


def sign(region: SimRegion, text: str) -> str:
    raw = hmac.new(region.secret.encode(), text.encode(), hashlib.sha256).digest()
    return base64.b64encode(raw).decode().rstrip("=")


def make_ticket(region: SimRegion, user: str, now: float) -> str:
    plain = f"PVE:{user}:{int(now):08X}"
    return f"{plain}::{sign(region, plain)}"


def make_csrf(region: SimRegion, user: str, now: float) -> str:
    stamp = f"{int(now):08X}"
    return f"{stamp}:{sign(region, f'{stamp}:{user}')}"


def verify_ticket(region: SimRegion, ticket: str, now: float) -> str | None:
    """The user of a valid ticket, or None."""
    match = _TICKET.match(ticket)
    if not match or not hmac.compare_digest(match[3], sign(region, f"PVE:{match[1]}:{match[2]}")):
        return None
    age = now - int(match[2], 16)
    return match[1] if -CLOCK_SKEW < age < TICKET_LIFETIME else None


def is_valid_csrf(region: SimRegion, user: str, csrf: str, now: float) -> bool:
    match = _CSRF.match(csrf)
    if not match or not hmac.compare_digest(match[2], sign(region, f"{match[1]}:{user}")):
        return False
    return -CLOCK_SKEW < now - int(match[1], 16) < TICKET_LIFETIME


def is_active(user: SimUser | None, now: float) -> bool:
    """Whether the account exists, is enabled and has not expired."""
    return user is not None and bool(user.enable) and not 0 < user.expire < now


def authenticate(
    region: SimRegion, headers: dict[str, str], now: float, *, writes: bool
) -> AuthenticatedCaller:
    """Authenticate a request; raises AuthenticationFailure."""
    given = _TOKEN.match(headers.get("authorization", ""))
    if given:
        return _by_token(region, given[1], now)
    ticket = _cookie(headers.get("cookie", ""))
    if not ticket:
        raise AuthenticationFailure("No ticket")
    user = verify_ticket(region, ticket, now)
    if user is None or not is_active(region.access.users.get(user), now):
        raise AuthenticationFailure("Authentication failed!")
    if writes and not is_valid_csrf(region, user, headers.get("csrfpreventiontoken", ""), now):
        raise AuthenticationFailure("Permission denied - invalid csrf token")
    return AuthenticatedCaller(user)


def _by_token(region: SimRegion, text: str, now: float) -> AuthenticatedCaller:
    full, _, secret = text.partition("=")
    name, _, tokenid = full.partition("!")
    user = region.access.users.get(name)
    token = user.tokens.get(tokenid) if user else None
    good = token is not None and hmac.compare_digest(token.secret.encode(), secret.encode())
    if not good or token is None or not is_active(user, now) or 0 < token.expire < now:
        raise AuthenticationFailure("Authentication failed!")
    return AuthenticatedCaller(name, tokenid)


def _cookie(header: str) -> str | None:
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == "PVEAuthCookie":
            return unquote(value)
    return None


def is_valid_password(region: SimRegion, userid: str, password: str, now: float) -> bool:
    """Check a password, or a ticket that is renewed with itself."""
    user = region.access.users.get(userid)
    realm = userid.rpartition("@")[2]
    if user is None or not is_active(user, now) or realm not in region.access.realms:
        return False
    if verify_ticket(region, password, now) == userid:
        return True
    return user.password is not None and hmac.compare_digest(
        user.password.encode(), password.encode()
    )
