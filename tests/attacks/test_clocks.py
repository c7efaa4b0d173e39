"""
Clocks that jump or differ, stops and restarts: no worker whose kubelet runs is ever replaced.

The node lifecycle and MachineHealthCheck controllers run with their real runtime on virtual time.
Kubelets are loops that renew a lease and report Ready with clocks of their own.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moxwell.api.capi.core import Machine
from moxwell.api.capi.machinesets import MachineHealthCheck
from moxwell.embedded.clusterapi.machinehealthcheck.controller import (
    MachineHealthCheckController,
)
from moxwell.embedded.controllermanager.nodelifecycle.controller import NodeLifecycleController
from moxwell.embedded.controllermanager.resources import LEASES, NODES
from moxwell.errors import Conflict, Missing, Retryable
from moxwell.kube.client import Kube
from moxwell.runtime.manager import Runtime, assemble
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.settings import ManagerSettings
from moxwell.testing.kube import FakeKube
from moxwell.testing.loop import LoopClock, run_virtual

Json = dict[str, Any]
HOUR = 3600.0
TIMEOUT = 300
LEASE_NAMESPACE = "kube-node-lease"
CHECK: Json = {
    "apiVersion": "cluster.x-k8s.io/v1beta2",
    "kind": "MachineHealthCheck",
    "metadata": {"name": "c", "namespace": "d"},
    "spec": {
        "clusterName": "c",
        "selector": {"matchLabels": {"group": "md"}},
        "checks": {
            "nodeStartupTimeoutSeconds": 1200,
            "unhealthyNodeConditions": [
                {"type": "Ready", "status": "Unknown", "timeoutSeconds": TIMEOUT},
                {"type": "Ready", "status": "False", "timeoutSeconds": 600},
            ],
        },
        "remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": "50%"}},
    },
}


class WrongClock:
    """A clock whose wall time is wrong, and whose monotonic time includes pauses of the process."""

    def __init__(self, skew: float = 0.0) -> None:
        self._loop = LoopClock()
        self.skew = skew
        self.paused = 0.0

    def now(self) -> datetime:
        return self._loop.now() + timedelta(seconds=self.skew)

    def monotonic(self) -> float:
        return self._loop.monotonic() + self.paused

    async def sleep(self, seconds: float) -> None:
        await self._loop.sleep(seconds)


@dataclass(eq=False)
class Kubelet:
    """Renews the lease and reports Ready, unless it is silent."""

    kube: Kube
    name: str
    clock: WrongClock
    silent: bool = False
    ready: str = "True"
    reported: str = field(default="", init=False)

    def stamp(self) -> str:
        return self.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    async def run(self) -> None:
        while True:
            if not self.silent:
                with contextlib.suppress(Retryable, Conflict, Missing):
                    await self._report()
            await self.clock.sleep(10)

    async def _report(self) -> None:
        spec = {"holderIdentity": self.name, "renewTime": self.stamp()}
        await self.kube.merge(LEASES, self.name, {"spec": spec}, LEASE_NAMESPACE)
        node = await self.kube.get(NODES, self.name)
        rows = {c["type"]: c for c in (node.get("status") or {}).get("conditions") or ()}
        if rows.get("Ready", {}).get("status") == self.ready:
            return
        row = {"type": "Ready", "status": self.ready, "lastHeartbeatTime": self.stamp()}
        rows["Ready"] = row | {"lastTransitionTime": self.clock.now().strftime("%Y-%m-%dT%TZ")}
        change = {"status": {"conditions": list(rows.values())}}
        await self.kube.merge(NODES, self.name, change, subresource="status")


class _Tenants:
    """The client of the one tenant cluster."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def find(self, _: Any) -> Kube:
        return self._kube


class Daemon:
    """The controllers of one process."""

    def __init__(self, scene: "Scene") -> None:
        quiet = ManagerSettings(elect=False)
        tenant = assemble(scene.tenant, scene.clock, quiet)
        caches = tenant.manager.caches
        lifecycle = NodeLifecycleController(tenant.kube, scene.clock, caches.of(NODES))
        tenant.manager.add(Controller(name="embedded.nodelifecycle", reconciler=lifecycle))
        management = assemble(scene.management, scene.clock, quiet)
        caches = management.manager.caches
        tenants: Any = _Tenants(Kube(scene.tenant))
        health = MachineHealthCheckController(
            management.kube,
            tenants,
            scene.clock,
            caches.of(MachineHealthCheck),
            caches.of(Machine),
        )
        management.manager.add(Controller(name="embedded.machinehealthcheck", reconciler=health))
        self._runtimes: tuple[Runtime, ...] = (tenant, management)
        self._running = [asyncio.create_task(r.manager.run()) for r in self._runtimes]

    async def stop(self) -> None:
        for runtime in self._runtimes:
            runtime.manager.stop()
        await asyncio.gather(*self._running)


class Scene:
    """One cluster: Machines, nodes in zones, kubelets, and the controllers under attack."""

    def __init__(self, zones: tuple[int, ...]) -> None:
        self.clock = WrongClock()
        self.tenant, self.management = FakeKube(self.clock), FakeKube(self.clock)
        self.zones = zones
        self.kubelets: dict[str, Kubelet] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.daemon: Daemon | None = None

    async def start(self) -> None:
        for zone, size in enumerate(self.zones):
            for number in range(size):
                await self._add(f"z{zone}n{number}", f"z{zone}")
        await Kube(self.management).create(CHECK, MachineHealthCheck.resource)
        self.daemon = Daemon(self)
        await self.clock.sleep(60)

    async def _add(self, name: str, zone: str) -> None:
        labels = {"topology.kubernetes.io/zone": zone}
        tenant = Kube(self.tenant)
        await tenant.create({"metadata": {"name": name, "labels": labels}, "spec": {}}, NODES)
        lease = {"metadata": {"name": name, "namespace": LEASE_NAMESPACE}, "spec": {}}
        await tenant.create(lease, LEASES)
        owner = {"apiVersion": "x", "kind": "MachineSet", "name": "s", "uid": "s"}
        meta = {
            "name": name,
            "namespace": "d",
            "labels": {"group": "md"},
            "finalizers": ["test/keep"],
            "ownerReferences": [owner | {"controller": True}],
        }
        machine = {
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Machine",
            "metadata": meta,
            "spec": {"clusterName": "c", "bootstrap": {}, "failureDomain": zone},
            "status": {"nodeRef": {"name": name}},
        }
        management = Kube(self.management)
        await management.create(machine, Machine.resource)
        status = {"status": machine["status"]}
        await management.merge(Machine.resource, name, status, "d", subresource="status")
        kubelet = Kubelet(tenant, name, WrongClock())
        self.kubelets[name] = kubelet
        self._tasks.append(asyncio.create_task(kubelet.run()))

    async def replaced(self) -> set[str]:
        """The Machines whose deletion was requested."""
        found = (await Kube(self.management).list(Machine.resource, "d")).items
        return {m["metadata"]["name"] for m in found if m["metadata"].get("deletionTimestamp")}

    async def node(self, name: str) -> Json:
        return await Kube(self.tenant).get(NODES, name)

    async def evicted(self) -> set[str]:
        found = (await Kube(self.tenant).list(NODES)).items
        return {
            n["metadata"]["name"]
            for n in found
            if any(t["effect"] == "NoExecute" for t in n["spec"].get("taints") or ())
        }

    async def restart(self, down: float) -> None:
        """The process ends; its API answers nobody for a while; a new process starts."""
        assert self.daemon is not None
        await self.daemon.stop()
        with self.outage(*self.kubelets):
            await self.clock.sleep(down)
        self.daemon = Daemon(self)

    async def pause(self, seconds: float) -> None:
        """The process is stopped (SIGSTOP, a suspended host): time passes between two moments."""
        self.clock.paused += seconds
        await self.clock.sleep(1)

    @contextlib.contextmanager
    def outage(self, *names: str) -> Any:
        """Kubelets that cannot reach the API."""
        hit = [self.kubelets[n] for n in names if not self.kubelets[n].silent]
        for kubelet in hit:
            kubelet.silent = True
        yield
        for kubelet in hit:
            kubelet.silent = False

    async def end(self) -> None:
        assert self.daemon is not None
        await self.daemon.stop()
        for task in self._tasks:
            task.cancel()


@contextlib.asynccontextmanager
async def scene(*zones: int) -> AsyncIterator[Scene]:
    made = Scene(zones)
    await made.start()
    yield made
    await made.end()


def virtual(story: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a story on virtual time as a test."""

    def test() -> None:
        run_virtual(story())

    test.__doc__ = story.__doc__
    return test


@virtual
async def test_an_old_transition_time_does_not_end_the_timeout() -> None:
    """A worker that stops has the whole timeout before it is replaced."""
    async with scene(3) as at:
        await at.clock.sleep(HOUR)  # Ready has been True for an hour
        at.kubelets["z0n0"].silent = True
        stopped = at.clock.now()
        await at.clock.sleep(120)
        ready = next(
            c for c in (await at.node("z0n0"))["status"]["conditions"] if c["type"] == "Ready"
        )
        assert ready["status"] == "Unknown"
        assert ready["lastTransitionTime"] > stopped.strftime("%Y-%m-%dT%H:%M:%SZ")
        await at.clock.sleep(TIMEOUT - 120)
        assert await at.replaced() == set()
        await at.clock.sleep(180)
        assert await at.replaced() == {"z0n0"}


@pytest.mark.parametrize("skew", [2 * HOUR, -2 * HOUR])
def test_our_clock_jumps(skew: float) -> None:
    async def story() -> None:
        async with scene(3) as at:
            at.clock.skew = skew
            await at.clock.sleep(1200)
            assert await at.replaced() == set()
            assert await at.evicted() == set()

    run_virtual(story())


@pytest.mark.parametrize("skew", [2 * HOUR, -2 * HOUR])
def test_clocks_of_nodes_are_wrong(skew: float) -> None:
    """A kubelet with a wrong clock becomes not ready for a moment, after an hour."""

    async def story() -> None:
        async with scene(3) as at:
            kubelet = at.kubelets["z0n1"]
            kubelet.clock.skew = skew
            await at.clock.sleep(600)
            kubelet.ready = "False"
            await at.clock.sleep(120)
            assert await at.replaced() == set()
            kubelet.ready = "True"
            await at.clock.sleep(1200)
            assert await at.replaced() == set()

    run_virtual(story())


@virtual
async def test_a_new_process_grants_the_whole_time_again() -> None:
    """The leases are old after we were down for an hour."""
    async with scene(3) as at:
        await at.restart(down=HOUR)
        await at.clock.sleep(1200)
        assert await at.replaced() == set()
        assert await at.evicted() == set()


@virtual
async def test_a_process_that_was_stopped_counts_nothing() -> None:
    """SIGSTOP for ten minutes, several times, while a node is silent for a moment."""
    async with scene(4) as at:
        for name in ("z0n0", "z0n1"):
            with at.outage(name):
                await at.clock.sleep(70)
                await at.pause(600)
                await at.clock.sleep(20)
            await at.clock.sleep(60)
        assert await at.replaced() == set()


@virtual
async def test_machines_being_deleted_do_not_weaken_the_limit() -> None:
    """Three of six workers go; the fourth must wait until they are replaced."""
    async with scene(3, 3) as at:
        lost = {"z0n0", "z0n1", "z1n0"}
        for name in lost:
            at.kubelets[name].silent = True
        await at.clock.sleep(1200)
        assert await at.replaced() == lost
        at.kubelets["z1n1"].silent = True
        await at.clock.sleep(1200)
        assert await at.replaced() == lost


@virtual
async def test_nothing_happens_while_most_of_a_zone_is_silent() -> None:
    """The network of a zone fails for an hour; its nodes come back one after the other."""
    async with scene(5, 5) as at:
        lost = [f"z0n{i}" for i in range(4)]
        with at.outage(*lost):
            await at.clock.sleep(HOUR)
            assert await at.replaced() == set()
            assert await at.evicted() == set()
        await at.clock.sleep(600)
        assert await at.replaced() == set()


@virtual
async def test_evictions_and_remediations_are_limited() -> None:
    """Four nodes of two zones fail together; one goes per zone and ten seconds."""
    async with scene(8, 8) as at:
        for name in ("z0n0", "z0n1", "z1n0", "z1n1"):
            at.kubelets[name].silent = True
        before: set[str] = set()
        for _ in range(120):
            await at.clock.sleep(5)
            now = await at.replaced()
            assert len(now - before) <= 2
            assert len({n[:2] for n in now - before}) == len(now - before)
            before = now
        assert before == {"z0n0", "z0n1", "z1n0", "z1n1"}


Event = tuple[str, float]
EVENTS = st.one_of(
    st.tuples(st.just("our clock"), st.floats(-2 * HOUR, 2 * HOUR)),
    st.tuples(st.just("node clocks"), st.floats(-2 * HOUR, 2 * HOUR)),
    st.tuples(st.just("restart"), st.floats(0, 2 * HOUR)),
    st.tuples(st.just("pause"), st.floats(1, 2 * HOUR)),
    st.tuples(st.just("zone outage"), st.floats(1, HOUR)),
    st.tuples(st.just("node outage"), st.floats(1, 200)),
    st.tuples(st.just("wait"), st.floats(1, 900)),
)


async def happens(at: Scene, event: Event) -> None:
    """One event of the property test."""
    kind, value = event
    if kind == "our clock":
        at.clock.skew = value
    elif kind == "node clocks":
        for index, kubelet in enumerate(at.kubelets.values()):
            kubelet.clock.skew = value * (1 if index % 2 else -0.5)
    elif kind == "restart":
        await at.restart(value)
    elif kind == "pause":
        await at.pause(value)
    elif kind == "zone outage":
        with at.outage(*(n for n in at.kubelets if n.startswith("z0"))):
            await at.clock.sleep(value)
    elif kind == "node outage":
        with at.outage("z1n1"):
            await at.clock.sleep(value)
    await at.clock.sleep(value if kind == "wait" else 30)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.lists(EVENTS, min_size=1, max_size=6), st.booleans())
def test_no_running_worker_is_ever_replaced(events: list[Event], broken: bool) -> None:
    """Whatever clocks, processes and networks do; one that is really gone is replaced later."""

    async def story() -> None:
        async with scene(3, 3) as at:
            gone = {"z1n0"} if broken else set()
            for name in gone:
                at.kubelets[name].silent = True
            for event in events:
                await happens(at, event)
                assert await at.replaced() <= gone
            await at.clock.sleep(900)
            assert await at.replaced() == gone

    run_virtual(story())
