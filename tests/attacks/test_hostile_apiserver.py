"""
An API server that a tenant chose: the kubeconfig Secret of a cluster names its address.

Whatever it answers costs a limited amount of memory and only the requests to it. Bytes are
counted, so no test depends on a time.
"""

import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web

from moxwell.api.kinds import Resource
from moxwell.errors import MoxwellError, Unreachable
from moxwell.kube import watch
from moxwell.kube.client import Kube
from moxwell.kube.errors import LONGEST_MESSAGE, error_from
from moxwell.kube.kubeconfig import ApiAccess
from moxwell.kube.transport import KubeTransport

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
MIB = 1 << 20
Answer = Callable[[web.BaseRequest, web.StreamResponse], Coroutine[Any, Any, None]]


@asynccontextmanager
async def hostile(answer: Answer, *, zipped: bool = False) -> AsyncIterator[str]:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/json"})
        if zipped:
            response.enable_compression(web.ContentCoding.gzip)
        with suppress(ConnectionError):
            await response.prepare(request)
            await answer(request, response)
        return response

    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def endless(request: web.BaseRequest, response: web.StreamResponse) -> None:
    for _ in range(2_000):
        await response.write(b" " * MIB)


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "compressed"])
async def test_an_endless_answer_is_limited(zipped: bool) -> None:
    async with hostile(endless, zipped=zipped) as server:
        access = ApiAccess(server=server)
        async with KubeTransport(access, max_answer=8 * MIB) as transport:
            tracemalloc.start()
            try:
                with pytest.raises(Unreachable, match="more than 8 MiB"):
                    await Kube(transport).get(NODES, "n")
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    assert peak < 64 * MIB


async def test_an_endless_event_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MAX_EVENT", 2 * MIB)
    async with hostile(endless) as server, KubeTransport(ApiAccess(server=server)) as transport:
        with pytest.raises(Unreachable, match="an event of a watch has more than 2 MiB"):
            async for _ in Kube(transport).watch(NODES, resource_version="1"):
                pass


@pytest.mark.parametrize(
    "retry_after",
    [
        pytest.param("\N{SUPERSCRIPT TWO}", id="a digit that is no number"),
        pytest.param("9" * 5_000, id="a number of 5,000 digits"),
        pytest.param("soon", id="a word"),
    ],
)
def test_when_to_try_again_is_a_number(retry_after: str) -> None:
    error: MoxwellError = error_from(429, b"{}", retry_after)
    assert isinstance(error, MoxwellError)


def test_a_message_is_cut() -> None:
    body = b'{"kind": "Status", "message": "' + b"x" * MIB + b'"}'
    assert len(str(error_from(500, body))) < LONGEST_MESSAGE + 1_000
