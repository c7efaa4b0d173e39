"""Reads what the checks of a region look at; changes nothing."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from moxwell.clock import Clock
from moxwell.errors import MoxwellError
from moxwell.pve.client import PveReader
from moxwell.pve.config import PasswordAuth, RegionConfig
from moxwell.pve.endpoints.nodes import HostInterface, HostStorageStatus
from moxwell.pve.errors import PermissionDenied

CONFIGS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """A template and the options that matter to machines."""

    vmid: int
    name: str
    host: str
    tags: tuple[str, ...]
    config: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class RegionFacts:
    """A region as the checks see it; ``error`` says why the rest could not be read."""

    region: str
    urls: tuple[str, ...]
    user: str
    insecure: bool = False
    pinned: bool = False
    error: MoxwellError | None = None
    version: str = ""
    major: int = 0
    permissions: Mapping[str, Mapping[str, int]] = field(default_factory=dict, hash=False)
    quorate: bool | None = None  # None: a single host, or the token may not read it
    hosts: Mapping[str, bool] = field(default_factory=dict, hash=False)  # name, online
    skews: Mapping[str, float] = field(default_factory=dict, hash=False)  # host, seconds
    storages: Mapping[str, tuple[HostStorageStatus, ...]] = field(default_factory=dict, hash=False)
    bridges: Mapping[str, tuple[HostInterface, ...]] = field(default_factory=dict, hash=False)
    templates: tuple[TemplateFacts, ...] = ()
    vmids: frozenset[int] = frozenset()
    free: Mapping[str, tuple[int, int]] = field(default_factory=dict, hash=False)  # CPUs, bytes


async def read_facts(pve: PveReader, config: RegionConfig, clock: Clock) -> RegionFacts:
    """Read a region; what fails first is the error."""
    auth = config.auth
    user = auth.username if isinstance(auth, PasswordAuth) else auth.token_id
    base = RegionFacts(config.region, config.urls, user, config.insecure, bool(config.fingerprint))
    try:
        known = await _read_access(pve, base)
    except MoxwellError as error:
        return replace(base, error=error)
    try:
        return await _read(pve, known, clock)
    except MoxwellError as error:
        return replace(known, error=error)


async def _read_access(pve: PveReader, base: RegionFacts) -> RegionFacts:
    version = await pve.version()
    permissions = await pve.access.permissions()
    return replace(base, version=version.version, major=version.major, permissions=permissions)


async def _quorate(pve: PveReader) -> bool | None:
    """Whether the cluster has a quorum; the documented role may not read it."""
    try:
        members = await pve.cluster.status()
    except PermissionDenied:  # needs Sys.Audit on /
        return None
    return next((row.quorate for row in members if row.type == "cluster"), None)


async def _read(pve: PveReader, known: RegionFacts, clock: Clock) -> RegionFacts:
    hosts = {row.node: row.status == "online" for row in await pve.nodes.list()}
    online = [name for name, answers in sorted(hosts.items()) if answers]
    rows = await pve.cluster.resources("vm")
    found = [row for row in rows if row.template]
    templates = await _templates(pve, [(r.vmid, r.name, r.node, r.tags) for r in found])
    return replace(
        known,
        quorate=await _quorate(pve),
        hosts=hosts,
        skews={host: await _skew(pve, host, clock) for host in online},
        storages={host: await pve.nodes.storages(host) for host in online},
        bridges={host: await pve.nodes.network(host, type="any_bridge") for host in online},
        templates=templates,
        vmids=frozenset(row.vmid for row in rows),
        free={host: await _free(pve, host) for host in online},
    )


async def _skew(pve: PveReader, host: str, clock: Clock) -> float:
    before = clock.now().timestamp()
    answered = (await pve.nodes.time(host)).time
    return answered - (before + clock.now().timestamp()) / 2


async def _free(pve: PveReader, host: str) -> tuple[int, int]:
    status = await pve.nodes.status(host)
    memory = status.memory.available
    return status.cpuinfo.cpus, status.memory.free if memory is None else memory


async def _templates(
    pve: PveReader, rows: list[tuple[int, str, str, str]]
) -> tuple[TemplateFacts, ...]:
    limit = asyncio.Semaphore(CONFIGS_AT_ONCE)

    async def one(vmid: int, name: str, host: str, tags: str) -> TemplateFacts:
        async with limit:
            config = await pve.qemu.config(host, vmid)
        return TemplateFacts(vmid, name, host, tuple(re.split("[;, ]+", tags)), dict(config.raw))

    return tuple(await asyncio.gather(*(one(*row) for row in sorted(rows))))
