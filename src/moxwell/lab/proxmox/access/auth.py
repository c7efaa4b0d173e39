"""
Who asks: tickets with their CSRF token, and API tokens.

A ticket is ``PVE:user@realm:HEXTIME::signature``, good for two hours; the signature is ours, an
HMAC with the region's secret. What a caller is told when it fails is always the same text.
"""

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from urllib.parse import unquote

from moxwell.lab.proxmox.errors import PveError
from moxwell.lab.proxmox.state import Region, User

LIFETIME, AHEAD = 7200, 300
_TICKET = re.compile(r"^PVE:(\S+):([0-9A-F]{8})::(\S+)$")
_CSRF = re.compile(r"^([0-9A-F]{8}):(\S+)$")
_TOKEN = re.compile(r"^PVEAPIToken[ =](.+)$")


class Unauthorised(PveError):
    """A 401: empty body, told by its reason phrase alone, and late."""

    def __init__(self, message: str) -> None:
        super().__init__(401, message)


@dataclass(frozen=True, slots=True)
class Identity:
    user: str
    token: str | None = None


def sign(region: Region, text: str) -> str:
    raw = hmac.new(region.secret.encode(), text.encode(), hashlib.sha256).digest()
    return base64.b64encode(raw).decode().rstrip("=")


def make_ticket(region: Region, user: str, now: float) -> str:
    plain = f"PVE:{user}:{int(now):08X}"
    return f"{plain}::{sign(region, plain)}"


def make_csrf(region: Region, user: str, now: float) -> str:
    stamp = f"{int(now):08X}"
    return f"{stamp}:{sign(region, f'{stamp}:{user}')}"


def user_of_ticket(region: Region, ticket: str, now: float) -> str | None:
    """The user a good ticket names, or None."""
    match = _TICKET.match(ticket)
    if not match or not hmac.compare_digest(match[3], sign(region, f"PVE:{match[1]}:{match[2]}")):
        return None
    age = now - int(match[2], 16)
    return match[1] if -AHEAD < age < LIFETIME else None


def good_csrf(region: Region, user: str, csrf: str, now: float) -> bool:
    match = _CSRF.match(csrf)
    if not match or not hmac.compare_digest(match[2], sign(region, f"{match[1]}:{user}")):
        return False
    return -AHEAD < now - int(match[1], 16) < LIFETIME


def usable(user: User | None, now: float) -> bool:
    """Does the account exist, enabled and not expired?"""
    return user is not None and bool(user.enable) and not 0 < user.expire < now


def identify(region: Region, headers: dict[str, str], now: float, *, writes: bool) -> Identity:
    """The caller of a request; raises Unauthorised."""
    given = _TOKEN.match(headers.get("authorization", ""))
    if given:
        return _by_token(region, given[1], now)
    ticket = _cookie(headers.get("cookie", ""))
    if not ticket:
        raise Unauthorised("No ticket")
    user = user_of_ticket(region, ticket, now)
    if user is None or not usable(region.access.users.get(user), now):
        raise Unauthorised("Authentication failed!")
    if writes and not good_csrf(region, user, headers.get("csrfpreventiontoken", ""), now):
        raise Unauthorised("Permission denied - invalid csrf token")
    return Identity(user)


def _by_token(region: Region, text: str, now: float) -> Identity:
    full, _, secret = text.partition("=")
    name, _, tokenid = full.partition("!")
    user = region.access.users.get(name)
    token = user.tokens.get(tokenid) if user else None
    good = token is not None and hmac.compare_digest(token.secret.encode(), secret.encode())
    if not good or token is None or not usable(user, now) or 0 < token.expire < now:
        raise Unauthorised("Authentication failed!")
    return Identity(name, tokenid)


def _cookie(header: str) -> str | None:
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == "PVEAuthCookie":
            return unquote(value)
    return None


def good_password(region: Region, userid: str, password: str, now: float) -> bool:
    """A login by password, or the renewal of a ticket with the ticket itself."""
    user = region.access.users.get(userid)
    realm = userid.rpartition("@")[2]
    if user is None or not usable(user, now) or realm not in region.access.realms:
        return False
    if user_of_ticket(region, password, now) == userid:
        return True
    return user.password is not None and hmac.compare_digest(
        user.password.encode(), password.encode()
    )
