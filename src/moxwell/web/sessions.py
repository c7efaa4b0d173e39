"""
The sessions of the dashboard: links that work once, the sessions they open, the bearer token.

Sessions are kept by the server. One ends an hour after the last request or open page, twelve hours
after it began, by sign-out, or with the process. A link that is not used ends after ten minutes.
"""

import hmac
import secrets
from dataclasses import dataclass
from datetime import timedelta

from aiohttp import web

from moxwell.clock import Clock, SystemClock

IDLE = timedelta(hours=1)
ABSOLUTE = timedelta(hours=12)
LINK = timedelta(minutes=10)
MOST = 64  # links and sessions at a time; the oldest end first


@dataclass(slots=True)
class BrowserSession:
    """When a session began and when it was last used, by the monotonic clock."""

    began: float
    used: float


class Sessions:
    """Links, sessions, and the bearer token for commands of the same user."""

    def __init__(self, token: str | None = None, clock: Clock | None = None) -> None:
        self._bearer = token or secrets.token_urlsafe(24)
        self._clock = clock or SystemClock()
        self._links: dict[str, float] = {}
        self._sessions: dict[str, BrowserSession] = {}

    @property
    def bearer(self) -> str:
        """The token for commands of the same user; stored in a file that only they can read."""
        return self._bearer

    def new_link(self) -> str:
        """The token of a new link."""
        link = secrets.token_urlsafe(18)
        self._links[link] = self._clock.monotonic()
        _limit(self._links)
        return link

    def open(self, link: str) -> str | None:
        """Open a session with a link; None if the link is unknown, used or too old."""
        now, made = self._clock.monotonic(), self._links.pop(link, None)
        if made is None or now - made > LINK.total_seconds():
            return None
        session = secrets.token_urlsafe(24)
        self._sessions[session] = BrowserSession(now, now)
        _limit(self._sessions)
        return session

    def authenticates(self, request: web.Request) -> bool:
        """Whether a request has a valid session, which counts as its use, or the bearer token."""
        if self.is_open(request.cookies.get(cookie_name(request), "")):
            return True
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        same = hmac.compare_digest(given.encode(errors="surrogateescape"), self._bearer.encode())
        return same and scheme == "Bearer"

    def is_open(self, session: str) -> bool:
        """Whether a session has not ended; it is used by asking."""
        found, now = self._sessions.get(session), self._clock.monotonic()
        if found is None:
            return False
        idle = now - found.used > IDLE.total_seconds()
        if idle or now - found.began > ABSOLUTE.total_seconds():
            del self._sessions[session]
            return False
        found.used = now
        return True

    def end(self, request: web.Request) -> None:
        """Sign out: end the session of a request."""
        self._sessions.pop(request.cookies.get(cookie_name(request), ""), None)


def cookie_name(request: web.Request) -> str:
    """The name contains the port: browsers send cookies of one host to all its ports."""
    return f"moxwell-{request.url.port}"


def _limit(entries: dict[str, float] | dict[str, BrowserSession]) -> None:
    while len(entries) > MOST:
        entries.pop(next(iter(entries)))
