"""
Proxmox for tests: a transport to the simulator's engine without sockets, and the contract of steps.

Client, controllers and simulator run together on the virtual loop. The transport fails over between
the region's hosts as the HTTP transport does between URLs.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import unquote

from moxwell.errors import Retryable
from moxwell.lab.proxmox.engine import Engine
from moxwell.lab.proxmox.message import SimRequest, SimResponse
from moxwell.lab.proxmox.request_context import UploadedFile as SimUpload
from moxwell.pve import errors
from moxwell.pve.client import PveWriter
from moxwell.pve.effects import Owned
from moxwell.pve.ownership import Foreign
from moxwell.pve.steps import Step
from moxwell.pve.transport import DEADLINE_SECONDS, UPLOAD_SECONDS, FileUpload
from moxwell.pve.values import Params, Upid, as_fields

ROOT = "root@pam"


class SimTransport:
    """Transport to one region of a simulator in the same process."""

    def __init__(
        self,
        engine: Engine,
        region: str,
        *,
        token: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._engine = engine
        self._region = region
        self._headers = dict(headers or {})
        if token:
            self._headers["authorization"] = f"PVEAPIToken={token}"
        self.sent: list[tuple[str, str]] = []

    @property
    def region(self) -> str:
        return self._region

    async def request(
        self,
        method: str,
        path: str,
        params: Params | None = None,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> bytes:
        return await self._send(method, path, params, None, deadline_seconds)

    async def upload(
        self,
        path: str,
        params: Params,
        file: FileUpload,
        *,
        deadline_seconds: float = UPLOAD_SECONDS,
    ) -> bytes:
        data = b"".join([chunk async for chunk in file.open()])
        upload = SimUpload(file.filename, data)
        form = {**params, "filename": file.filename}
        return await self._send("POST", path, form, upload, deadline_seconds)

    async def close(self) -> None:
        return None

    async def _send(
        self,
        method: str,
        path: str,
        params: Params | None,
        upload: SimUpload | None,
        deadline_seconds: float,
    ) -> bytes:
        where = f"region {self._region}: {method} {path}"
        self.sent.append((method, path))
        try:
            async with asyncio.timeout(deadline_seconds):
                answer = await self._anywhere(method, path, params, upload)
        except TimeoutError as error:
            raise self._lost(method, where) from error
        if answer.cut:
            raise self._lost(method, where)
        if answer.status != 200:
            raise errors.from_response(answer.status, answer.reason, answer.body, where=where)
        return answer.body

    async def _anywhere(
        self, method: str, path: str, params: Params | None, upload: SimUpload | None
    ) -> SimResponse:
        """Try the hosts in turn, as the HTTP transport tries its URLs."""
        answer = SimResponse(595, "no hosts")
        for host in self._engine.runtimes[self._region].region.hosts:
            request = SimRequest(
                method,
                tuple(unquote(path).strip("/").split("/")),
                _form(params),
                self._headers,
                upload=upload,
                node=host,
            )
            answer = await self._engine.handle(self._region, request)
            if answer.status != 595:
                return answer
        return answer

    @staticmethod
    def _lost(method: str, where: str) -> errors.PveError:
        if method == "GET":
            return errors.RegionUnreachable("no answer", where=where)
        return errors.OutcomeUnknown("no answer; it may have happened", where=where)


def _form(params: Params | None) -> dict[str, Any]:
    form: dict[str, Any] = {}
    for key, value in as_fields(params):
        if isinstance((params or {})[key], str | int | float):
            form[key] = value
        else:
            form.setdefault(key, []).append(value)
    return form


# ---------------------------------------------------------------------- the contract of steps


class Stage(Protocol):
    """A region in which a step is tested."""

    def writer(self, owned: Owned) -> PveWriter:
        """Return a client that may write to what is owned."""
        ...

    async def settle(self, upid: Upid | None) -> None:
        """Wait until a task has ended."""
        ...

    def snapshot(self) -> Any:
        """Return the state of the region as a comparable value."""
        ...

    def steal(self) -> None:
        """Give the target of the step another owner."""
        ...


async def check_step(step: Step, stage: Stage, *, budget_seconds: float = 1.0) -> None:
    """Assert that a step makes progress, may be performed twice and does not wait."""
    before = stage.snapshot()
    await stage.settle(await step.perform(stage.writer(step.owned)))
    after = stage.snapshot()
    assert after != before, f"{step} made no progress"
    started = asyncio.get_running_loop().time()
    try:
        upid = await step.perform(stage.writer(step.owned))
    except Retryable:
        upid = None
    waited = asyncio.get_running_loop().time() - started
    assert waited <= budget_seconds, f"{step} waited for {waited} s"
    await stage.settle(upid)
    assert stage.snapshot() == after, f"taking {step} twice was not harmless"


async def check_refusal(step: Step, stage: Stage) -> None:
    """Assert that a step does not change an object of another owner."""
    stage.steal()
    before = stage.snapshot()
    try:
        upid = await step.perform(stage.writer(step.owned))
    except Foreign:
        upid = None
    else:
        raise AssertionError(f"{step} did not refuse a foreign mark ({upid})")
    assert stage.snapshot() == before, f"{step} touched what is foreign"
