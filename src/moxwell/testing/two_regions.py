"""
A test environment with two simulated Proxmox regions and an embedded API server, on virtual time.

It also simulates what is outside of the ``infra`` controllers: an IPAM provider, guests that boot
from their bootstrap ISO, and the part of Cluster API that sets node references.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml
from msgspec import structs

from moxwell.api.capi.core import Machine
from moxwell.api.infra.machine import ProxmoxMachine
from moxwell.api.infra.template import LastApplied
from moxwell.bootstrap import baking
from moxwell.bootstrap.iso import read_iso
from moxwell.clock import Clock
from moxwell.controllers.infra.region_registry import RegionRegistry
from moxwell.controllers.infra.setup import Infra, add_infra
from moxwell.embedded.apiserver.hooks import AdmitHook
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.embedded.clusterapi.ipam.controller import IPAddressClaimController
from moxwell.kube.client import Kube
from moxwell.lab.proxmox import chaos
from moxwell.lab.proxmox.engine import Engine
from moxwell.lab.proxmox.errors import PveException
from moxwell.lab.proxmox.fault_injection import Fault
from moxwell.lab.proxmox.guest import GuestAgentNotRunning, GuestVm
from moxwell.lab.proxmox.state import SimRegion as SimRegion
from moxwell.pve.config import PasswordAuth, RegionConfig, TokenAuth
from moxwell.pve.regions import Regions
from moxwell.pve.reservations import Reservations
from moxwell.pve.values import SecretValue
from moxwell.runtime.manager import Manager, Runtime, assemble
from moxwell.runtime.reconciler import Controller
from moxwell.runtime.settings import ManagerSettings
from moxwell.runtime.tenant_clients import TenantClients
from moxwell.testing.cached_worlds import fresh_regions, open_store
from moxwell.testing.effect_counter import EffectCounter
from moxwell.testing.loop import LoopClock
from moxwell.testing.pve import SimTransport
from moxwell.testing.two_regions_world import TOKEN as TOKEN
from moxwell.testing.two_regions_world import TOKEN_SECRET as TOKEN_SECRET
from moxwell.testing.two_regions_world import WORLD as WORLD

SETTINGS = ManagerSettings(elect=False, identity="test", concurrency=16)
SENTINEL = "/run/cluster-api/bootstrap-success.complete"
CAPI, INFRA = "cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io"


@dataclass
class SimulatedGuests:
    """
    The operating systems of the guests: they read their bootstrap ISO and finish after a while.
    """

    clock: Clock
    join_seconds: float = 8.0
    config_drives: dict[str, dict[str, bytes]] = field(default_factory=dict)  # by instance-id
    up: dict[tuple[str, int], float] = field(default_factory=dict)
    names: dict[tuple[str, int], str] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)  # names of guests whose bootstrap fails
    without_agent: set[str] = field(default_factory=set)  # names of guests without a running agent
    dhcp_address: str = "10.9.9.9"  # assigned by DHCP
    cards: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # by name of the guest

    async def booted(self, vm: GuestVm) -> None:
        key = (vm.region, vm.vmid)
        self.up[key], self.names[key] = self.clock.monotonic(), vm.name
        data = vm.media("ide2")
        if data:
            files = read_iso(data)
            meta = yaml.safe_load(files["meta-data"])
            self.config_drives[meta["instance-id"]] = files

    async def stopped(self, region: str, vmid: int) -> None:
        self.up.pop((region, vmid), None)

    async def agent(self, vm: GuestVm, command: str, args: dict[str, Any]) -> Any:
        if vm.name in self.without_agent:
            raise GuestAgentNotRunning
        if args.get("file") == baking.RESULT and vm.name in self.failing:
            return {"content": f"{baking.FAILED}\nno route to the mirror\n"}
        if "file" in command and not self.joined(vm.region, vm.vmid):
            raise PveException(500, f"Agent error: failed to open file '{SENTINEL}': No such file")
        if args.get("file") == baking.RESULT:
            return {"content": f"{baking.SEALED}\n"}
        if "file-open" in command:
            return 1
        if "file-read" in command:
            return {"count": 7, "buf-b64": base64.b64encode(b"success").decode(), "eof": True}
        if "network-get-interfaces" in command:
            addresses = [{"ip-address": self.dhcp_address, "ip-address-type": "ipv4", "prefix": 24}]
            card = {"name": "eth0", "hardware-address": "", "ip-addresses": addresses}
            return [{"name": "lo"}, *self.cards.get(vm.name, [card])]
        return {}

    def handles_shutdown(self, vm: GuestVm) -> bool:
        return vm.name not in self.without_agent

    def joined(self, region: str, vmid: int) -> bool:
        """Whether the bootstrap of a guest has finished."""
        since = self.up.get((region, vmid))
        ok = self.names.get((region, vmid)) not in self.failing
        return ok and since is not None and self.clock.monotonic() - since >= self.join_seconds


@dataclass
class TwoRegions:
    """What survives a crash of the program under test."""

    clock: LoopClock
    store: EmbeddedApiServer
    engine: Engine
    guest_os: SimulatedGuests
    transports: dict[str, SimTransport]
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    urls: dict[str, tuple[str, ...]] = field(default_factory=dict)  # overrides, by region
    auths: dict[str, TokenAuth | PasswordAuth] = field(default_factory=dict)  # overrides, by region

    @property
    def kube(self) -> Kube:
        return Kube(self.store, manager="test")

    def region(self, name: str) -> SimRegion:
        return self.engine.runtimes[name].region

    def guests(self, name: str) -> dict[int, Any]:
        """The guests of a region that were created during the test."""
        found = self.region(name).guests
        return {v: g for v, g in found.items() if not g.conf.get("template") and v != 201}

    def isos(self, name: str) -> list[str]:
        """All ISOs of a region."""
        return [v for v in self.volumes(name) if v.endswith(".iso")]

    def volumes(self, name: str) -> list[str]:
        """All volumes of a region."""
        return [
            volume
            for storage in self.region(name).storages.values()
            for volumes in storage.volumes.values()
            for volume in volumes
        ]

    def chaos(self, region: str, what: str, **args: Any) -> None:
        """Change a region behind the back of the controllers."""
        chaos.perform(self.engine.runtimes[region], what, args)

    def fault(self, name: str, kind: str, **more: Any) -> None:
        """Let requests or tasks of a region fail from now on."""
        self.engine.faults[name].add(Fault(kind, **more))

    async def machine(self, name: str) -> ProxmoxMachine:
        return await self.kube.get(ProxmoxMachine, name, "default")

    async def until(
        self, name: str, what: Callable[[ProxmoxMachine], bool], seconds: float = 600
    ) -> ProxmoxMachine:
        """Wait until a predicate is true of the machine."""
        end = self.clock.monotonic() + seconds
        while not what(obj := await self.machine(name)):
            if self.clock.monotonic() > end:
                conditions = [
                    f"{c.type}={c.status} {c.reason}: {c.message}" for c in obj.status.conditions
                ]
                raise AssertionError(f"{name} timed out: {obj.status.next_move}, {conditions}")
            await asyncio.sleep(1)
        return obj

    async def until_gone(self, name: str, seconds: float = 600) -> None:
        """Wait until the ProxmoxMachine does not exist."""
        end = self.clock.monotonic() + seconds
        while (obj := await self.kube.find(ProxmoxMachine, name, "default")) is not None:
            assert self.clock.monotonic() < end, f"{name} stays: {obj.status}"
            await asyncio.sleep(1)

    async def delete(self, name: str) -> None:
        """Delete a ProxmoxMachine."""
        await self.kube.delete(ProxmoxMachine, name, "default")

    def sent(self, name: str = "north") -> list[tuple[str, str]]:
        """All requests sent to a region so far."""
        return self.transports[name].sent

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.engine.close()
        await self.store.__aexit__(None, None, None)


def ready(obj: ProxmoxMachine) -> bool:
    """Whether the machine is ready and its bootstrap ISO deleted."""
    return is_true(obj, "Ready") and obj.status.next_move == ""


def applied(obj: ProxmoxMachine) -> LastApplied:
    """What the claim lists as applied to the guest."""
    return (obj.spec.claim.applied if obj.spec.claim else None) or LastApplied()


def is_true(obj: ProxmoxMachine, type_: str) -> bool:
    """Whether a condition is True."""
    return any(c.type == type_ and c.status == "True" for c in obj.status.conditions)


def reason(obj: ProxmoxMachine, type_: str = "Ready") -> str:
    """The reason of a condition."""
    return next((c.reason for c in obj.status.conditions if c.type == type_), "")


def message(obj: ProxmoxMachine, type_: str = "Ready") -> str:
    """The message of a condition."""
    return next((c.message for c in obj.status.conditions if c.type == type_), "")


async def start_two_regions(
    world: str = WORLD, *, crds: bool = True, admit: AdmitHook = lambda review: ()
) -> TwoRegions:
    """Start a new environment; ``admit`` is the admission of its API server."""
    clock = LoopClock()
    store = open_store(clock, crds=crds, admit=admit)
    await store.__aenter__()
    guest_os = SimulatedGuests(clock)
    engine = Engine(fresh_regions(world), clock, guest_os=guest_os)
    token = f"{TOKEN}={TOKEN_SECRET}"
    transports = {name: SimTransport(engine, name, token=token) for name in engine.runtimes}
    env = TwoRegions(clock, store, engine, guest_os, transports)
    env.tasks.append(asyncio.create_task(run_other_controllers(env)))
    return env


async def run_other_controllers(env: TwoRegions) -> None:
    """The IPAM provider, and the part of Cluster API that sets node references."""
    runtime = assemble(env.store, env.clock, SETTINGS)
    claims = IPAddressClaimController(runtime.kube, env.clock, runtime.manager.caches)
    runtime.manager.add(Controller(name="test.claims", reconciler=claims, per_shard=1))
    async with asyncio.TaskGroup() as group:
        group.create_task(runtime.manager.run())
        group.create_task(_set_node_references(env))


async def _set_node_references(env: TwoRegions) -> None:
    kube = env.kube
    while True:
        await asyncio.sleep(2)
        for obj in (await kube.list(ProxmoxMachine)).items:
            spec = obj.spec
            if not obj.status.initialization.provisioned or obj.deleting:
                continue
            vmid = spec.virtual_machine_id or 0
            change: dict[str, Any] = {"initialization": {"infrastructureProvisioned": True}}
            if any(env.guest_os.joined(name, vmid) for name in env.transports):
                change["nodeRef"] = {"name": obj.name}
            machine = await kube.find(Machine, obj.name, obj.namespace)
            if machine and machine.status.node_ref is None:
                await kube.merge_status(Machine, obj.name, {"status": change}, obj.namespace)


def configs(*names: str) -> list[RegionConfig]:
    """The configuration of regions."""
    auth = TokenAuth(TOKEN, SecretValue(TOKEN_SECRET))
    return [
        RegionConfig(region=name, urls=(f"https://{name}.example:8006",), auth=auth)
        for name in names
    ]


@dataclass(frozen=True)
class Program:
    """One run of the program under test."""

    runtime: Runtime
    regions: Regions
    infra: Infra

    @property
    def manager(self) -> Manager:
        return self.runtime.manager


def program(
    env: TwoRegions,
    *names: str,
    wires: EffectCounter | None = None,
    settings: ManagerSettings = SETTINGS,
) -> Program:
    """The ``infra`` controllers on the environment, with the named regions or all."""
    cut = wires or EffectCounter()
    runtime = assemble(cut.kube(env.store), env.clock, settings)

    def connect(config: RegionConfig) -> Any:
        found: Any = env.transports.get(config.region)
        if found is None:  # added by a cluster's credentials: the host name selects the region
            host = config.urls[0].partition("://")[2].partition(".")[0]
            found = SimTransport(env.engine, host, token=f"{TOKEN}={TOKEN_SECRET}")
            found = _Renamed(found, config.region)
        return cut.pve(found)

    known = [
        structs.replace(
            config,
            urls=env.urls.get(config.region, config.urls),
            auth=env.auths.get(config.region, config.auth),
        )
        for config in configs(*(names or env.transports))
    ]
    regions = Regions(known, env.clock, connect=connect)
    book = RegionRegistry(regions, known)
    tenants = TenantClients(runtime.kube, lambda access: env.store, env.clock)
    infra = add_infra(runtime, env.clock, regions, Reservations(), registry=book, tenants=tenants)
    runtime.manager.add_loop("pve", regions.run)
    return Program(runtime, regions, infra)


class _Renamed:
    """A transport under the name of another region."""

    def __init__(self, inner: SimTransport, region: str) -> None:
        self._inner, self.region = inner, region

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@asynccontextmanager
async def running(
    *names: str, world: str = WORLD, prepare: Callable[[TwoRegions], None] | None = None
) -> AsyncIterator[tuple[TwoRegions, Program]]:
    """Start a new environment with the program running on it."""
    env = await start_two_regions(world)
    if prepare:
        prepare(env)
    made = program(env, *names)
    life = asyncio.create_task(made.manager.run())
    try:
        yield env, made
    finally:
        made.manager.stop()
        await life
        await env.close()
