"""What people see from outside: health, metrics and logs."""

import asyncio
import io
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from moxwell.clock import SystemClock
from moxwell.kube.client import Kube
from moxwell.kube.reader import Reader
from moxwell.runtime import log
from moxwell.runtime.manager import Runtime, assemble
from moxwell.runtime.move import Done
from moxwell.runtime.reconciler import Controller, Reconciler
from moxwell.runtime.settings import Listen, ManagerSettings
from moxwell.testing.kube import FakeKube
from moxwell.testing.sample_kind import THINGS, Thing, thing


async def ask(runtime: Runtime, path: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{runtime.manager.ports['health']}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


class Nothing(Reconciler[Thing, None, Done, None]):
    kind = Thing

    def __init__(self) -> None:
        self.seen = asyncio.Event()

    async def see(self, obj: Thing, reader: Reader) -> None:
        self.seen.set()

    def plan(self, obj: Thing, seen: None) -> Done:
        return Done()

    async def act(self, move: Done) -> None:
        raise AssertionError("Done is not executed")

    def describe(self, obj: Thing, seen: None, move: Done) -> None:
        return None


@asynccontextmanager
async def serving(fake: FakeKube, nothing: Nothing) -> AsyncIterator[Runtime]:
    chosen = ManagerSettings(identity="a", health=Listen())
    runtime = assemble(fake, SystemClock(), chosen, rng=random.Random(1))
    runtime.manager.add(Controller(name="test.nothing", reconciler=nothing))
    started = asyncio.Event()

    async def start() -> None:
        started.set()

    runtime.manager.add_loop("started", start)
    running = asyncio.create_task(runtime.manager.run())
    await started.wait()
    try:
        yield runtime
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_a_manager_without_an_api_is_alive_and_not_ready() -> None:
    fake = FakeKube(SystemClock())
    fake.unreachable = True
    async with serving(fake, Nothing()) as runtime:
        assert await ask(runtime, "/healthz") == (200, "ok")
        assert await ask(runtime, "/readyz") == (500, "[-]caches\nnot ready")


async def test_health_readiness_and_metrics_are_served() -> None:
    fake, nothing = FakeKube(SystemClock()), Nothing()
    await Kube(fake).create(thing("one"), THINGS)
    async with serving(fake, nothing) as runtime:
        await runtime.manager.wait_ready()
        await nothing.seen.wait()
        assert await ask(runtime, "/readyz") == (200, "ok")
        status, text = await ask(runtime, "/metrics")
    assert status == 200
    for line in (
        'controller_runtime_reconcile_total{controller="test.nothing",result="success"} 1.0',
        'workqueue_adds_total{controller="test.nothing",name="test.nothing"} 1.0',
        'workqueue_depth{controller="test.nothing",name="test.nothing",priority="0"} 0.0',
        'leader_election_master_status{name="moxwell"} 1.0',
        'moxwell_cache_objects{kind="things.test.moxwell.dev"} 1.0',
    ):
        assert line in text


SHARED = {
    "controller_runtime_reconcile_total",
    "controller_runtime_reconcile_errors_total",
    "controller_runtime_terminal_reconcile_errors_total",
    "controller_runtime_reconcile_panics_total",
    "controller_runtime_reconcile_time_seconds",
    "controller_runtime_max_concurrent_reconciles",
    "controller_runtime_active_workers",
    "workqueue_depth",
    "workqueue_adds_total",
    "workqueue_queue_duration_seconds",
    "workqueue_work_duration_seconds",
    "workqueue_unfinished_work_seconds",
    "workqueue_longest_running_processor_seconds",
    "workqueue_retries_total",
    "leader_election_master_status",
    "rest_client_requests_total",
    "controller_runtime_webhook_requests_total",
    "controller_runtime_webhook_latency_seconds",
    "controller_runtime_webhook_requests_in_flight",
}


def test_metrics_are_named_like_controller_runtimes_or_are_ours() -> None:
    from moxwell.runtime.metrics import Metrics

    registry = CollectorRegistry()
    Metrics(registry)
    lines = generate_latest(registry).decode().splitlines()
    names = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert names >= SHARED
    assert all(name in SHARED or name.startswith("moxwell_") for name in names)


SECRET = "0123abcd-ef45-6789-aaaa-bbbbccccdddd"


@pytest.mark.parametrize(
    "name, value",
    [
        ("token_secret", SECRET),
        ("password", SECRET),
        ("headers", {"Authorization": f"PVEAPIToken=root@pam!x={SECRET}"}),
        ("error", f"401 for PVEAPIToken=root@pam!x={SECRET}"),
        ("error", f"sent Bearer {SECRET}"),
        ("error", f"GET /?password={SECRET}&x=1"),
        ("config", [{"clusters": [{"token_secret": SECRET}]}]),
        ("error", f"-----BEGIN EC PRIVATE KEY-----\n{SECRET}\n-----END EC PRIVATE KEY-----"),
        ("kubeconfig", SECRET),
        ("user_data", f"#cloud-config {SECRET}"),
    ],
)
@pytest.mark.parametrize("form", ["json", "console"])
def test_a_secret_does_not_reach_a_log(name: str, value: object, form: str) -> None:
    out = io.StringIO()
    try:
        log.configure(form=form, stream=out)  # type: ignore[arg-type]
        structlog.get_logger().info("guest cloned", vmid=101, **{name: value})
    finally:
        structlog.reset_defaults()
    assert SECRET not in out.getvalue()
    assert "guest cloned" in out.getvalue()


def test_a_line_carries_what_was_bound_and_errors_with_their_trace() -> None:
    out = io.StringIO()
    try:
        log.configure(form="json", level="info", stream=out)
        logger = structlog.get_logger()
        with structlog.contextvars.bound_contextvars(controller="infra.machine", key="a/b"):
            logger.debug("not shown")
            try:
                raise ValueError("odd")
            except ValueError as error:
                logger.error("pass broken", exc_info=error, secret_name="visible", token_count=3)
    finally:
        structlog.reset_defaults()
    line = json.loads(out.getvalue())
    assert (line["controller"], line["key"], line["level"]) == ("infra.machine", "a/b", "error")
    assert "ValueError: odd" in line["exception"]
    assert (line["secret_name"], line["token_count"]) == ("visible", 3)


@given(st.text())
def test_ordinary_text_is_left_as_it_is(text: str) -> None:
    if not any(word in text for word in ("=", "PVE", "eyJ", "BEGIN")):
        assert log.scrub_text(text) == text or "earer" in text.lower()


def test_a_log_on_a_full_disk_loses_lines_and_ends_nothing() -> None:
    with Path("/dev/full").open("w") as full:
        log.configure(stream=full)
        try:
            structlog.get_logger("test").info("nobody reads this")
        finally:
            structlog.reset_defaults()
            with suppress(OSError):
                full.close()
