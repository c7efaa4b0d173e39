"""
Starts and stops the programs of one tenant in order, and restarts API servers one by one.

kube-apiserver comes first. With several of them a balancer listens on the tenant's address; it
starts when they are healthy and takes the address over from a single API server. The others follow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from moxwell.embedded.clusterapi.tenantcontrolplane.plan import HostedControlPlaneSpec
from moxwell.embedded.controlplanes.binaries.flags import TenantLayout
from moxwell.embedded.controlplanes.binaries.installed import Release
from moxwell.embedded.controlplanes.binaries.programs import (
    API_SERVER,
    BALANCER,
    api_servers,
    balancer,
    companions,
)
from moxwell.embedded.controlplanes.binaries.rolling import keep_rolling, unchanged
from moxwell.embedded.controlplanes.supervision.supervisor import Program, ProgramState, Supervisor
from moxwell.embedded.controlplanes.tenant_controllers import TenantControllers

States = tuple[tuple[str, ProgramState], ...]


@dataclass(frozen=True, slots=True)
class TenantProgramStates:
    """States by name; ``current`` if every API server runs as described."""

    servers: States = ()
    others: States = ()
    current: bool = True
    started: bool = False  # all programs have been started

    @property
    def all(self) -> States:
        return (*self.servers, *self.others)

    @property
    def ready_servers(self) -> int:
        return sum(state.healthy for _, state in self.servers)

    @property
    def ready(self) -> bool:
        """Whether the tenant's API is served and all its controllers run."""
        return (
            self.started
            and self.ready_servers > 0
            and all(state.healthy for _, state in self.others)
        )


class TenantPrograms:
    """The programs of all tenants; ``controllers`` stop before a single API server restarts."""

    def __init__(self, supervisor: Supervisor, controllers: TenantControllers) -> None:
        self._supervisor, self._controllers = supervisor, controllers

    def listens(self, folder: Path) -> bool:
        """Whether a program of the tenant listens on its address."""
        return any(self._supervisor.has(folder / name) for name in (API_SERVER, BALANCER))

    async def start(
        self,
        spec: HostedControlPlaneSpec,
        layout: TenantLayout,
        release: Release,
        changed: Callable[[], None],
    ) -> TenantProgramStates:
        """Start what can start now."""
        servers, front = api_servers(spec, layout, release), balancer(layout)
        others = companions(spec, layout, release)
        if front is None and self._supervisor.differs(servers[0]):
            await self._stop_clients(spec, others)
        states, current = await keep_rolling(self._supervisor, servers, changed)
        named = tuple((p.name, state) for p, state in zip(servers, states, strict=True))
        if not any(state.healthy for state in states):
            return TenantProgramStates(named, current=current)
        found: list[tuple[str, ProgramState]] = []
        if front is not None:
            if not await self._replace_single(layout.folder, states):
                return TenantProgramStates(named, current=current)
            await self._stop_surplus(layout)
            found.append((front.name, await self._supervisor.keep(front, changed)))
            if not found[0][1].healthy:
                return TenantProgramStates(named, tuple(found), current)
        for program in others:
            found.append((program.name, await self._keep(program, changed, current=current)))
        return TenantProgramStates(named, tuple(found), current, started=True)

    async def _keep(
        self, program: Program, changed: Callable[[], None], *, current: bool
    ) -> ProgramState:
        """A program is not restarted before all API servers are, whose version it may not pass."""
        if not current and self._supervisor.differs(program):
            return unchanged(self._supervisor.state(program.key))
        return await self._supervisor.keep(program, changed)

    async def _stop_clients(self, spec: HostedControlPlaneSpec, others: Sequence[Program]) -> None:
        await self._controllers.stop(spec.key)
        for program in reversed(others):
            await self._supervisor.stop(program.key)

    async def _replace_single(self, folder: Path, states: Sequence[ProgramState]) -> bool:
        """Stop the API server without a balancer once all others can serve; False: not yet."""
        if not self._supervisor.has(folder / API_SERVER):
            return True
        if not all(state.healthy for state in states):
            return False
        await self._supervisor.stop(folder / API_SERVER)
        return True

    async def _stop_surplus(self, layout: TenantLayout) -> None:
        kept = {f"{API_SERVER}-{index}" for index in range(len(layout.replicas))}
        for name in self._names(layout.folder):
            if name.startswith(f"{API_SERVER}-") and name not in kept:
                await self._supervisor.stop(layout.folder / name)

    def _names(self, folder: Path) -> list[str]:
        """Every program of a folder that is supervised or was left by another daemon."""
        supervised = {p.name for p in self._supervisor.programs() if p.parent == folder}
        return sorted(supervised | {file.stem for file in folder.glob("*.run")})

    async def stop(self, folder: Path) -> None:
        """Stop all programs of a tenant, its API servers last."""
        names = self._names(folder)
        for name in sorted(names, key=lambda n: n.startswith((API_SERVER, BALANCER))):
            await self._supervisor.stop(folder / name)
