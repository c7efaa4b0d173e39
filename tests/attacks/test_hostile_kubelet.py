"""
A kubelet that somebody has taken over, and the services that only the API server's machine reaches.

Its answers lead no request anywhere else: a redirect is followed neither with nor without a body.
"""

import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from moxwell.clock import SystemClock
from moxwell.embedded.apiserver.kubelet import genuine_kubelets
from moxwell.embedded.apiserver.kubelet.genuine_kubelets import GenuineKubelets
from moxwell.embedded.apiserver.kubelet.pod_target import PodTarget
from moxwell.embedded.apiserver.status_errors import StatusError

TARGET = PodTarget("n", "default", "p", "c")
NODE = {"metadata": {"name": "n"}}
Handle = Callable[[web.BaseRequest], web.StreamResponse]


@asynccontextmanager
async def served(handle: Handle) -> AsyncIterator[str]:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return handle(request)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    seen: Counter[str] = Counter()

    def internal(request: web.BaseRequest) -> web.StreamResponse:
        seen[request.path] += 1
        return web.Response(text="secret of an internal service")

    async with served(internal) as target:

        def hostile(request: web.BaseRequest) -> web.StreamResponse:
            return web.Response(status=status, headers={"location": f"{target}/internal"})

        async with served(hostile) as address:
            monkeypatch.setattr(genuine_kubelets, "node_url", lambda node: address)
            context = ssl.create_default_context()
            kubelets = GenuineKubelets(context, lambda name: [NODE], SystemClock())
            with pytest.raises(StatusError, match="redirect"):
                await kubelets.logs(TARGET, ())
            with pytest.raises(StatusError):
                async with kubelets.exec(TARGET, (("command", "id"),)):
                    pass
            with pytest.raises(StatusError):
                async with kubelets.forward(TARGET, 80):
                    pass
            assert (await kubelets.usage())["nodes"] == {}
            await kubelets.close()
    assert not seen
