"""Attacks on the dashboard's sessions: a stolen cookie or link, a page that was left open."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from moxwell.testing.loop import LoopClock, run_virtual
from moxwell.web.sessions import ABSOLUTE, IDLE, LINK, MOST, Sessions


def request(session: str | None, bearer: str = "") -> web.Request:
    """A request with the cookie of a session."""
    cookies = {"moxwell-8480": session or ""}
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    found: Any = SimpleNamespace(cookies=cookies, headers=headers, url=SimpleNamespace(port=8480))
    return cast(web.Request, found)


@pytest.mark.parametrize(
    "seconds, valid",
    [
        pytest.param(IDLE.total_seconds() - 1, True, id="in use"),
        pytest.param(IDLE.total_seconds() + 1, False, id="idle"),
    ],
)
def test_an_idle_session_ends(seconds: float, valid: bool) -> None:
    async def main() -> None:
        clock = LoopClock()
        sessions = Sessions(clock=clock)
        session = sessions.open(sessions.new_link())
        await clock.sleep(seconds)
        assert sessions.authenticates(request(session)) is valid

    run_virtual(main())


def test_a_session_in_use_ends_after_twelve_hours() -> None:
    async def main() -> None:
        clock = LoopClock()
        sessions = Sessions(clock=clock)
        session = sessions.open(sessions.new_link())
        ends = clock.monotonic() + ABSOLUTE.total_seconds()
        while clock.monotonic() < ends:
            assert sessions.authenticates(request(session))
            await clock.sleep(IDLE.total_seconds() / 2)
        await clock.sleep(1)
        assert not sessions.authenticates(request(session))

    run_virtual(main())


def test_sign_out_ends_the_session_on_the_server() -> None:
    sessions = Sessions()
    mine, other = (sessions.open(sessions.new_link()) for _ in range(2))
    sessions.end(request(mine))
    assert not sessions.authenticates(request(mine))
    assert sessions.authenticates(request(other))


def test_a_link_works_once_and_for_minutes() -> None:
    async def main() -> None:
        clock = LoopClock()
        sessions = Sessions(clock=clock)
        link, late = sessions.new_link(), sessions.new_link()
        assert sessions.open(link) is not None
        assert sessions.open(link) is None
        await clock.sleep(LINK.total_seconds() + 1)
        assert sessions.open(late) is None

    run_virtual(main())


def test_links_and_sessions_do_not_accumulate() -> None:
    sessions = Sessions()
    opened = [sessions.open(sessions.new_link()) for _ in range(3 * MOST)]
    assert sum(sessions.authenticates(request(session)) for session in opened) == MOST


@pytest.mark.parametrize("given", ["", "x", "\udcff"])
def test_a_wrong_token_is_refused(given: str) -> None:
    sessions = Sessions("right")
    assert not sessions.authenticates(request(None, given))
    assert sessions.authenticates(request(None, "right"))


def test_a_session_outlives_a_restart_but_not_its_time_or_its_sign_out(tmp_path: Path) -> None:
    async def main() -> None:
        clock, file = LoopClock(), tmp_path / "sessions.json"
        first = Sessions(clock=clock, file=file)
        kept, left = (first.open(first.new_link()) for _ in range(2))
        first.end(request(left))
        again = Sessions(clock=clock, file=file)
        assert again.authenticates(request(kept))
        assert not again.authenticates(request(left))
        await clock.sleep(IDLE.total_seconds() + 1)
        assert not Sessions(clock=clock, file=file).authenticates(request(kept))

    run_virtual(main())


def test_the_file_of_sessions_opens_nothing(tmp_path: Path) -> None:
    file = tmp_path / "sessions.json"
    sessions = Sessions(file=file)
    session = sessions.open(sessions.new_link())
    stored = file.read_text()
    assert session is not None
    assert session not in stored
    assert file.stat().st_mode & 0o077 == 0
    for hashed in json.loads(stored):
        assert not sessions.authenticates(request(hashed))


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"a": 1}', b"\xff", b'{"a":["x","y"]}'])
def test_a_damaged_file_of_sessions_is_no_session(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "sessions.json"
    file.write_bytes(content)
    sessions = Sessions(file=file)
    assert not sessions.authenticates(request("a"))
    assert sessions.authenticates(request(sessions.open(sessions.new_link())))
