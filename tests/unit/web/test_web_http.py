"""The dashboard's server: who may come in, and what is streamed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from aiohttp import ClientSession, CookieJar
from aiohttp.test_utils import TestServer

from moxwell.web.http import Dashboard, Doors
from moxwell.web.ring import Ring

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def served(ring: Ring, doors: Doors) -> AsyncIterator[tuple[ClientSession, str]]:
    server = TestServer(Dashboard(ring, doors, hosts=["127.0.0.1"]).routes())
    await server.start_server()
    try:
        async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as client:
            yield client, str(server.make_url("")).rstrip("/")
    finally:
        await server.close()


async def test_a_link_opens_one_session() -> None:
    doors = Doors("key")
    async with served(Ring(NOW), doors) as (client, base):
        link = doors.new_link()
        async with client.get(f"{base}/enter/{link}") as first:
            assert first.status == 200
        async with client.get(f"{base}/api/state") as state:
            assert state.status == 200
        async with client.get(f"{base}/enter/{link}") as second:
            assert second.status == 403


@pytest.mark.parametrize("header", ["", "Bearer wrong", "key"])
async def test_without_a_key_nothing_is_told(header: str) -> None:
    async with served(Ring(NOW), Doors("key")) as (client, base):
        headers = {"Authorization": header} if header and header != "key" else {}
        async with client.get(f"{base}/api/state", headers=headers) as answer:
            assert answer.status == 401


async def test_another_host_name_is_not_answered() -> None:
    async with served(Ring(NOW), Doors("key")) as (client, base):
        answer = await client.get(f"{base}/", headers={"Host": "evil.example"})
        assert answer.status == 421


async def test_files_outside_the_folder_are_not_served() -> None:
    async with served(Ring(NOW), Doors("key")) as (client, base):
        answer = await client.get(f"{base}/static/..%2Fhttp.py")
        assert answer.status == 404


async def test_a_stream_goes_on_from_where_it_was_left() -> None:
    ring, doors = Ring(NOW), Doors("key")
    for value in range(3):
        ring.put({"a": {"v": value}}, at=NOW)
    headers = {"Authorization": "Bearer key", "Last-Event-ID": "2"}
    async with served(ring, doors) as (client, base):
        answer = await client.get(f"{base}/api/stream", headers=headers)
        async with asyncio.timeout(5):
            first = await answer.content.readuntil(b"\n\n")
        answer.close()
        assert first.startswith(b"id: 3\nevent: change")
