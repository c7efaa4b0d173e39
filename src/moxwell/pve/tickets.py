"""
Tickets: what a user with a password gets instead of an API token, and must renew.

In: user, password, a way to log in. Out: the headers of a request. The surprise: a ticket lives two
hours on every host of the region, but it is checked against the user's state at each request, so a
401 in between means: log in again, once.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from moxwell.clock import Clock
from moxwell.errors import Unsupported
from moxwell.pve import errors
from moxwell.pve.values import SecretValue

RENEW_SECONDS = 3600.0  # half of a ticket's life

Login = Callable[[str, str], Awaitable[bytes]]


class _Ticket(msgspec.Struct):
    ticket: str
    csrf: str = msgspec.field(name="CSRFPreventionToken", default="")
    need_tfa: bool = msgspec.field(name="NeedTFA", default=False)


class _Envelope(msgspec.Struct):
    data: _Ticket


_DECODER = msgspec.json.Decoder(_Envelope, strict=False)


class Tickets:
    """The current ticket; one login at a time."""

    def __init__(self, username: str, password: SecretValue, clock: Clock, login: Login) -> None:
        self._username = username
        self._password = password
        self._clock = clock
        self._login = login
        self._lock = asyncio.Lock()
        self._current: tuple[str, str] | None = None
        self._renew_at = 0.0

    async def headers(self, method: str) -> str:
        """Headers of a request: the cookie, and for changes the CSRF token."""
        async with self._lock:
            if self._current is None or self._clock.monotonic() >= self._renew_at:
                await self._renew()
            assert self._current is not None
            read, write = self._current
            return read if method == "GET" else write

    def refused(self, headers: str) -> None:
        """The server no longer takes these headers; unless they are old already, log in again."""
        if self._current is not None and headers in self._current:
            self._current = None

    async def _renew(self) -> None:
        body = await self._login(self._username, self._password.reveal())
        try:
            ticket = _DECODER.decode(body).data
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise errors.CredentialsRefused("the login answer holds no ticket") from error
        if ticket.need_tfa:
            raise Unsupported(
                f"user {self._username} needs a second factor; use an API token instead"
            )
        if not (ticket.ticket + ticket.csrf).isprintable():
            raise errors.CredentialsRefused("the login answer holds an odd ticket")
        read = f"Cookie: PVEAuthCookie={ticket.ticket}\r\n"
        self._current = (read, f"{read}CSRFPreventionToken: {ticket.csrf}\r\n")
        self._renew_at = self._clock.monotonic() + RENEW_SECONDS
