"""
Tickets: login with user and password instead of an API token, renewed before they expire.

A ticket is valid for two hours, but Proxmox checks the user's state at each request; a 401 in
between causes one new login.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from moxwell.clock import Clock
from moxwell.errors import Unsupported
from moxwell.pve import errors
from moxwell.pve.values import SecretValue

RENEW_SECONDS = 3600.0  # half of a ticket's lifetime

Login = Callable[[str, str], Awaitable[bytes]]


class _Ticket(msgspec.Struct):
    ticket: str
    csrf: str = msgspec.field(name="CSRFPreventionToken", default="")
    need_tfa: bool = msgspec.field(name="NeedTFA", default=False)


class _Envelope(msgspec.Struct):
    data: _Ticket


_DECODER = msgspec.json.Decoder(_Envelope, strict=False)


class Tickets:
    """Holds the current ticket; one login at a time."""

    def __init__(self, username: str, password: SecretValue, clock: Clock, login: Login) -> None:
        self._username = username
        self._password = password
        self._clock = clock
        self._login = login
        self._lock = asyncio.Lock()
        self._current: tuple[str, str] | None = None
        self._renew_at = 0.0

    async def headers(self, method: str) -> str:
        """Return the headers of a request: the cookie, and for writes the CSRF token."""
        async with self._lock:
            if self._current is None or self._clock.monotonic() >= self._renew_at:
                await self._renew()
            assert self._current is not None
            read, write = self._current
            return read if method == "GET" else write

    def refused(self, headers: str) -> None:
        """Discard the ticket in these headers, unless a newer one is in use."""
        if self._current is not None and headers in self._current:
            self._current = None

    async def _renew(self) -> None:
        body = await self._login(self._username, self._password.reveal())
        try:
            ticket = _DECODER.decode(body).data
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise errors.CredentialsRefused(
                "the response of the login contains no ticket"
            ) from error
        if ticket.need_tfa:
            raise Unsupported(f"user {self._username} requires a second factor; use an API token")
        if not (ticket.ticket + ticket.csrf).isprintable():
            raise errors.CredentialsRefused("the response of the login contains an invalid ticket")
        read = f"Cookie: PVEAuthCookie={ticket.ticket}\r\n"
        self._current = (read, f"{read}CSRFPreventionToken: {ticket.csrf}\r\n")
        self._renew_at = self._clock.monotonic() + RENEW_SECONDS
