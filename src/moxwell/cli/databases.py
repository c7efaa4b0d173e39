"""
The databases of an instance, and requests to the processes that own them.

While the instance runs, only the owning process may open a database: commands send it requests
under ``/moxwell/storage``. While it is stopped, commands open the files themselves.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from moxwell.api.requests import Request
from moxwell.app.state_dir import StateDir
from moxwell.clock import SystemClock
from moxwell.embedded.apiserver.storage.status import PATH, DatabaseStatus
from moxwell.errors import Busy, Missing, MoxwellError, Unreachable

MANAGEMENT = "management"
StateOrError = DatabaseStatus | MoxwellError


@dataclass(frozen=True, slots=True)
class InstanceDatabase:
    """One database of an instance."""

    name: str
    path: Path
    kubeconfig: Path | None  # None: nobody but its own process can reach the API

    @property
    def backups(self) -> Path:
        return self.path.parent / "backups"


def list_databases(state: StateDir) -> tuple[InstanceDatabase, ...]:
    """The databases that exist: the management API, the tenants, simulated control planes."""
    found = [InstanceDatabase(MANAGEMENT, state.database, state.kubeconfig)]
    for path in sorted(state.control_planes.glob("*/*/store.db")):
        name = f"{path.parent.parent.name}/{path.parent.name}"
        found.append(InstanceDatabase(name, path, path.parent / "admin.conf"))
    for path in sorted(state.machine_control_planes.glob("*/store.db")):
        found.append(InstanceDatabase(f"machines/{path.parent.name}", path, None))
    return tuple(d for d in found if d.path.exists())


def get_database(state: StateDir, name: str) -> InstanceDatabase:
    """A database by name; a tenant may be named without its namespace if that is unique."""
    known = list_databases(state)
    matches = [d for d in known if name in (d.name, d.name.rpartition("/")[2])]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(d.name for d in known) or "none"
    raise Missing(f"no single database is called {name!r}; there are: {names}")


@contextmanager
def stopped(state: StateDir) -> Iterator[None]:
    """Hold the lock of a stopped instance; Busy while it runs."""
    try:
        state.acquire()
    except Busy as error:
        raise Busy(f"{error}: stop it with `moxwell down` first") from error
    try:
        yield
    finally:
        state.release()


async def send(database: InstanceDatabase, method: str, action: str = "") -> DatabaseStatus:
    """Send a request to the process that owns a database; returns the state of the database."""
    from moxwell.kube import kubeconfig
    from moxwell.kube.transport import KubeTransport

    if database.kubeconfig is None or not database.kubeconfig.exists():
        raise Unreachable(f"the API of {database.name} has no kubeconfig")
    access = kubeconfig.load([database.kubeconfig]).access(SystemClock(), os.environ)
    request = Request(method=method, path=PATH + action, headers={"accept": "application/json"})
    async with KubeTransport(access) as transport:
        response = await transport.handle(request)
    if response.status != 200:
        raise Unreachable(f"{database.name}: {_message(response.body)}")
    return msgspec.json.decode(response.body, type=DatabaseStatus)


def _message(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["message"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return body[:200].decode(errors="replace") or "no answer"


async def find_states(state: StateDir) -> list[tuple[InstanceDatabase, StateOrError]]:
    """The state of every database of a running instance that has an API, or why it is unknown."""
    reachable = [d for d in list_databases(state) if d.kubeconfig is not None]
    return list(
        zip(reachable, await asyncio.gather(*(_find_state(d) for d in reachable)), strict=True)
    )


async def _find_state(database: InstanceDatabase) -> StateOrError:
    try:
        return await send(database, "GET")
    except MoxwellError as error:
        return error


async def list_alarms(state: StateDir) -> list[str]:
    """The databases that refuse writes or hold damaged objects, as text."""
    found = []
    for database, status in await find_states(state):
        if isinstance(status, DatabaseStatus):
            found += [f"{database.name}: {alarm}, see `moxwell doctor`" for alarm in status.alarms]
            if status.unreadable:
                count = len(status.unreadable)
                found.append(f"{database.name}: {count} damaged objects, see `moxwell doctor`")
    return found
