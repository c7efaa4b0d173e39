"""The dashboard's server: who may come in, and what is streamed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from aiohttp import ClientSession, CookieJar
from aiohttp.test_utils import TestServer

from moxwell.web.change_log import ChangeLog
from moxwell.web.http import Dashboard
from moxwell.web.sessions import Sessions

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def served(ring: ChangeLog, doors: Sessions) -> AsyncIterator[tuple[ClientSession, str]]:
    async with run(Dashboard(ring, doors, hosts=["127.0.0.1"])) as opened:
        yield opened


@asynccontextmanager
async def run(board: Dashboard) -> AsyncIterator[tuple[ClientSession, str]]:
    server = TestServer(board.routes())
    await server.start_server()
    try:
        async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as client:
            yield client, str(server.make_url("")).rstrip("/")
    finally:
        await server.close()


async def test_a_link_opens_one_session() -> None:
    doors = Sessions("key")
    async with served(ChangeLog(NOW), doors) as (client, base):
        link = doors.new_link()
        async with client.get(f"{base}/enter/{link}") as first:
            assert first.status == 200
        async with client.get(f"{base}/api/state") as state:
            assert state.status == 200
        async with client.get(f"{base}/enter/{link}") as second:
            assert second.status == 403


@pytest.mark.parametrize("header, status", [
    pytest.param("", 401, id="no key"),
    pytest.param("Bearer wrong", 401, id="a wrong key"),
    pytest.param("key", 401, id="the key alone, as no client of ours sends it"),
    pytest.param("Bearer key", 200, id="the key"),
])  # fmt: skip
async def test_only_the_key_opens(header: str, status: int) -> None:
    async with served(ChangeLog(NOW), Sessions("key")) as (client, base):
        headers = {"Authorization": header} if header else {}
        async with client.get(f"{base}/api/state", headers=headers) as answer:
            assert answer.status == status


async def test_a_key_that_is_no_text_is_a_wrong_key() -> None:
    async with served(ChangeLog(NOW), Sessions("key")) as (_, base):
        port = int(base.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"GET /api/state HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer \xff\r\n\r\n"
        )
        async with asyncio.timeout(5):
            assert b" 401 " in await reader.readline()
        writer.close()
        await writer.wait_closed()


async def test_two_instances_on_one_address_do_not_shut_each_other_out() -> None:
    one, other = Sessions("key"), Sessions("key")
    async with (
        served(ChangeLog(NOW), one) as (client, base),
        served(ChangeLog(NOW), other) as (_, beside),
    ):
        for doors, at in ((one, base), (other, beside)):
            await client.get(f"{at}/enter/{doors.new_link()}")
        for at in (base, beside):
            async with client.get(f"{at}/api/state") as answer:
                assert answer.status == 200


@pytest.mark.parametrize("at, status", [
    pytest.param("2026-01-01T00:00:00Z", 200, id="a moment"),
    pytest.param("2026-01-01T00:00:00", 200, id="a moment without a zone is UTC"),
    pytest.param("yesterday", 400, id="no moment"),
])  # fmt: skip
async def test_the_picture_of_a_moment(at: str, status: int) -> None:
    headers = {"Authorization": "Bearer key"}
    async with served(ChangeLog(NOW), Sessions("key")) as (client, base):
        answer = await client.get(f"{base}/api/state", params={"at": at}, headers=headers)
        assert answer.status == status


async def test_another_host_name_is_not_answered() -> None:
    async with served(ChangeLog(NOW), Sessions("key")) as (client, base):
        answer = await client.get(f"{base}/", headers={"Host": "evil.example"})
        assert answer.status == 421


async def test_sign_out_ends_the_session() -> None:
    sessions = Sessions("key")
    async with served(ChangeLog(NOW), sessions) as (client, base):
        await client.get(f"{base}/enter/{sessions.new_link()}")
        cookies = {c.key: c.value for c in client.cookie_jar}
        async with client.post(f"{base}/api/sign-out") as answer:
            assert answer.status == 204
        async with client.get(f"{base}/api/state", cookies=cookies) as answer:
            assert answer.status == 401


@pytest.mark.parametrize("path, status", [("/api/state", 401), ("/static/none", 404), ("/", 401)])
async def test_errors_have_security_headers_too(path: str, status: int) -> None:
    async with served(ChangeLog(NOW), Sessions("key")) as (client, base):
        answer = await client.get(f"{base}{path}")
        assert answer.status == status
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_files_outside_the_folder_are_not_served() -> None:
    async with served(ChangeLog(NOW), Sessions("key")) as (client, base):
        answer = await client.get(f"{base}/static/..%2Fhttp.py")
        assert answer.status == 404


async def test_a_stream_goes_on_from_where_it_was_left() -> None:
    ring, doors = ChangeLog(NOW), Sessions("key")
    for value in range(3):
        ring.put({"a": {"v": value}}, at=NOW)
    headers = {"Authorization": "Bearer key", "Last-Event-ID": f"{ring.name}.2"}
    async with served(ring, doors) as (client, base):
        answer = await client.get(f"{base}/api/stream", headers=headers)
        async with asyncio.timeout(60):
            first = await answer.content.readuntil(b"\n\n")
        answer.close()
        assert first.startswith(f"id: {ring.name}.3\nevent: change".encode())


@pytest.mark.parametrize(
    "path, host",
    [
        pytest.param("/", "127.0.0.1", id="a page"),
        pytest.param("/static/nothing.js", "127.0.0.1", id="no such file"),
        pytest.param("/api/state", "127.0.0.1", id="no session"),
        pytest.param("/", "evil.example", id="another host"),
    ],
)
async def test_every_answer_has_security_headers(path: str, host: str) -> None:
    async with (
        served(ChangeLog(NOW), Sessions("key")) as (client, base),
        client.get(f"{base}{path}", headers={"Host": host}) as answer,
    ):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]


async def test_a_stream_accepts_any_last_event() -> None:
    headers = {"Authorization": "Bearer key", "Last-Event-ID": "\u00b2"}
    async with (
        served(ChangeLog(NOW), Sessions("key")) as (client, base),
        client.get(f"{base}/api/stream", headers=headers) as answer,
    ):
        assert answer.status == 200
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("last", ["2", "00000000.2", "-1", "\u00b2"])
async def test_a_stream_of_another_process_begins_with_everything(last: str) -> None:
    ring = ChangeLog(NOW)
    for value in range(3):
        ring.put({"a": {"v": value}}, at=NOW)
    headers = {"Authorization": "Bearer key", "Last-Event-ID": last}
    async with (
        served(ring, Sessions("key")) as (client, base),
        client.get(f"{base}/api/stream", headers=headers) as answer,
        asyncio.timeout(60),
    ):
        assert b"event: snapshot" in await answer.content.readuntil(b"\n\n")


@pytest.mark.parametrize("path", ["/", "/clusters", "/cluster/tenant-demo/demo"])
async def test_without_a_session_every_page_says_how_to_sign_in(path: str) -> None:
    board = Dashboard(
        ChangeLog(NOW), Sessions("key"), hosts=["127.0.0.1"], command="/a&b/moxwell status --name x"
    )
    async with run(board) as (client, base), client.get(f"{base}{path}") as answer:
        assert answer.status == 401
        assert "/a&amp;b/moxwell status --name x" in await answer.text()


async def test_an_unexpected_error_has_security_headers() -> None:
    async def broken(query: object) -> object:
        raise RuntimeError("secret detail")

    board = Dashboard(ChangeLog(NOW), Sessions("key"), hosts=["127.0.0.1"], actions={"x": broken})
    headers = {"Authorization": "Bearer key"}
    async with (
        run(board) as (client, base),
        client.get(f"{base}/api/do/x", headers=headers) as answer,
    ):
        assert answer.status == 500
        assert "secret detail" not in await answer.text()
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
