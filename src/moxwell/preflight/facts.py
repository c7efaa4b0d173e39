"""Reads the facts that the checks of a region need; changes nothing."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from moxwell.clock import Clock
from moxwell.errors import MoxwellError
from moxwell.pve.client import PveReader
from moxwell.pve.config import PasswordAuth, RegionConfig
from moxwell.pve.endpoints.ha import HaStatusRow
from moxwell.pve.endpoints.nodes import HostInterface, HostStorageStatus
from moxwell.pve.endpoints.sdn import SdnVnet, SdnZone
from moxwell.pve.errors import PermissionDenied

CONFIGS_AT_ONCE = 4
DEFAULT_PORT = 8006
Answers = Callable[[str, int], Awaitable[bool]]  # whether a host and port answer


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """A template and the options that matter to machines."""

    vmid: int
    name: str
    host: str
    tags: tuple[str, ...]
    config: Mapping[str, str] = field(default_factory=dict, hash=False)
    pool: str = ""


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
    latency: float = 0.0  # seconds of one request
    silent_urls: tuple[str, ...] = ()
    permissions: Mapping[str, Mapping[str, int]] = field(default_factory=dict, hash=False)
    quorate: bool | None = None  # None: a single host, or the token may not read it
    hosts: Mapping[str, bool] = field(default_factory=dict, hash=False)  # name, online
    skews: Mapping[str, float] = field(default_factory=dict, hash=False)  # host, seconds
    storages: Mapping[str, tuple[HostStorageStatus, ...]] = field(default_factory=dict, hash=False)
    bridges: Mapping[str, tuple[HostInterface, ...]] = field(default_factory=dict, hash=False)
    zones: tuple[SdnZone, ...] = ()
    vnets: tuple[SdnVnet, ...] = ()
    templates: tuple[TemplateFacts, ...] = ()
    vmids: frozenset[int] = frozenset()
    free: Mapping[str, tuple[int, int]] = field(default_factory=dict, hash=False)  # CPUs, bytes
    ha: tuple[HaStatusRow, ...] | None = None  # None: the token may not read it


async def read_facts(
    pve: PveReader, config: RegionConfig, clock: Clock, answers: Answers | None = None
) -> RegionFacts:
    """Read a region; what fails first is the error. ``answers`` tries the further URLs."""
    auth = config.auth
    user = auth.username if isinstance(auth, PasswordAuth) else auth.token_id
    base = RegionFacts(config.region, config.urls, user, config.insecure, bool(config.fingerprint))
    base = replace(base, silent_urls=await _silent(config.urls[1:], answers))
    try:
        known = await _read_access(pve, base, clock)
    except MoxwellError as error:
        return replace(base, error=error)
    try:
        return await _read(pve, known, clock)
    except MoxwellError as error:
        return replace(known, error=error)


async def _silent(urls: tuple[str, ...], answers: Answers | None) -> tuple[str, ...]:
    """The further URLs that do not answer; the client uses them only if the first one fails."""
    found = []
    for url in urls if answers is not None else ():
        parts = urlsplit(url)
        if answers and not await answers(parts.hostname or "", parts.port or DEFAULT_PORT):
            found.append(url)
    return tuple(found)


async def _read_access(pve: PveReader, base: RegionFacts, clock: Clock) -> RegionFacts:
    before = clock.monotonic()
    version = await pve.version()
    latency = clock.monotonic() - before
    permissions = await pve.access.permissions()
    return replace(
        base,
        version=version.version, major=version.major, latency=latency, permissions=permissions,
    )  # fmt: skip


async def _quorate(pve: PveReader) -> bool | None:
    """Whether the cluster has a quorum; the documented role may not read it."""
    try:
        members = await pve.cluster.status()
    except PermissionDenied:  # needs Sys.Audit on /
        return None
    return next((row.quorate for row in members if row.type == "cluster"), None)


async def _ha(pve: PveReader) -> tuple[HaStatusRow, ...] | None:
    try:
        return await pve.ha.status()
    except PermissionDenied:  # needs Sys.Audit on /
        return None


async def _read(pve: PveReader, known: RegionFacts, clock: Clock) -> RegionFacts:
    hosts = {row.node: row.status == "online" for row in await pve.nodes.list()}
    online = [name for name, answers in sorted(hosts.items()) if answers]
    rows = await pve.cluster.resources("vm")
    templates = await _templates(
        pve,
        [
            TemplateFacts(r.vmid, r.name, r.node, tuple(re.split("[;, ]+", r.tags)), pool=r.pool)
            for r in rows
            if r.template and hosts.get(r.node)
        ],
    )
    return replace(
        known,
        quorate=await _quorate(pve),
        hosts=hosts,
        skews={host: await _skew(pve, host, clock) for host in online},
        storages={host: await pve.nodes.storages(host) for host in online},
        bridges={host: await pve.nodes.network(host, type="any_bridge") for host in online},
        zones=await pve.sdn.zones(pending=True),
        vnets=await pve.sdn.vnets(pending=True),
        templates=templates,
        vmids=frozenset(row.vmid for row in rows),
        free={host: await _free(pve, host) for host in online},
        ha=await _ha(pve),
    )


async def _skew(pve: PveReader, host: str, clock: Clock) -> float:
    before = clock.now().timestamp()
    answered = (await pve.nodes.time(host)).time
    return answered - (before + clock.now().timestamp()) / 2


async def _free(pve: PveReader, host: str) -> tuple[int, int]:
    status = await pve.nodes.status(host)
    memory = status.memory.available
    return status.cpuinfo.cpus, status.memory.free if memory is None else memory


async def _templates(pve: PveReader, rows: list[TemplateFacts]) -> tuple[TemplateFacts, ...]:
    limit = asyncio.Semaphore(CONFIGS_AT_ONCE)

    async def one(found: TemplateFacts) -> TemplateFacts:
        async with limit:
            config = await pve.qemu.config(found.host, found.vmid)
        return replace(found, config=dict(config.raw))

    ordered = sorted(rows, key=lambda row: (row.vmid, row.host))
    return tuple(await asyncio.gather(*(one(row) for row in ordered)))
