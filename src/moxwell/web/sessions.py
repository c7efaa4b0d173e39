"""
The sessions of the dashboard: links that work once, the sessions they open, the bearer token.

Sessions are kept by the server. One ends an hour after the last request or open page, twelve hours
after it began, or by sign-out. A link that is not used ends after ten minutes. With a file,
sessions outlive a restart; the file holds hashes of their tokens, which open nothing.
"""

import hashlib
import hmac
import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from aiohttp import web

from moxwell.atomic_file import write_private
from moxwell.clock import Clock, SystemClock

IDLE = timedelta(hours=1)
ABSOLUTE = timedelta(hours=12)
LINK = timedelta(minutes=10)
MOST = 64  # links and sessions at a time; the oldest end first
WRITE = timedelta(minutes=1)  # how old the last use in the file may be
MAX_BYTES = 1 << 16
StoredSessions = dict[str, tuple[datetime, datetime]]  # began and last used, by hash


@dataclass(slots=True)
class BrowserSession:
    """When a session began and when it was last used, by the monotonic clock."""

    began: float
    used: float


class Sessions:
    """Links, sessions, and the bearer token for commands of the same user."""

    def __init__(
        self, token: str | None = None, clock: Clock | None = None, file: Path | None = None
    ) -> None:
        self._bearer = token or secrets.token_urlsafe(24)
        self._clock = clock or SystemClock()
        self._file = file
        self._links: dict[str, float] = {}
        self._sessions = self._stored()  # by hash of the token
        self._written = self._clock.monotonic()

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
        self._sessions[_hash(session)] = BrowserSession(now, now)
        _limit(self._sessions)
        self._write()
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
        key, now = _hash(session), self._clock.monotonic()
        found = self._sessions.get(key)
        if found is None:
            return False
        if _has_ended(found, now):
            del self._sessions[key]
            self._write()
            return False
        found.used = now
        if now - self._written > WRITE.total_seconds():
            self._write()
        return True

    def end(self, request: web.Request) -> None:
        """Sign out: end the session of a request."""
        self._sessions.pop(_hash(request.cookies.get(cookie_name(request), "")), None)
        self._write()

    def _stored(self) -> dict[str, BrowserSession]:
        """The sessions of the file that have not ended; none if it cannot be read."""
        if self._file is None:
            return {}
        try:
            with self._file.open("rb") as file:
                stored = msgspec.json.decode(file.read(MAX_BYTES), type=StoredSessions)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return {}
        now, at = self._clock.monotonic(), self._clock.now()

        def before(time: datetime) -> float:
            age = at - (time if time.tzinfo else time.replace(tzinfo=UTC))
            return now - max(0.0, age.total_seconds())

        found = {key: BrowserSession(before(a), before(b)) for key, (a, b) in stored.items()}
        return {key: session for key, session in found.items() if not _has_ended(session, now)}

    def _write(self) -> None:
        """Store the sessions; if that fails they end with the process."""
        self._written = self._clock.monotonic()
        if self._file is None:
            return
        now, at = self._clock.monotonic(), self._clock.now()

        def time(monotonic: float) -> datetime:
            return at - timedelta(seconds=now - monotonic)

        stored = {key: (time(s.began), time(s.used)) for key, s in self._sessions.items()}
        with suppress(OSError):
            write_private(self._file, msgspec.json.encode(stored))


def _has_ended(session: BrowserSession, now: float) -> bool:
    idle = now - session.used > IDLE.total_seconds()
    return idle or now - session.began > ABSOLUTE.total_seconds()


def _hash(session: str) -> str:
    return hashlib.sha256(session.encode(errors="surrogateescape")).hexdigest()


def cookie_name(request: web.Request) -> str:
    """The name contains the port: browsers send cookies of one host to all its ports."""
    return f"moxwell-{request.url.port}"


def _limit(entries: dict[str, float] | dict[str, BrowserSession]) -> None:
    while len(entries) > MOST:
        entries.pop(next(iter(entries)))
