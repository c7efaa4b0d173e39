"""
Fresh worlds at little cost: what is the same in all of them is made once per process and copied.

In: a world text. Out: simulated regions, and an embedded API that serves all kinds. Checking and
compiling two dozen definitions takes longer than a whole story on virtual time, so the stored
definitions are put into each new store as a restart would read them from disk.
"""

import copy
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

from moxwell.api import registry
from moxwell.api.conversion import KindConversion
from moxwell.api.kinds import Resource
from moxwell.clock import Clock
from moxwell.embedded.apiserver.hooks import Hooks
from moxwell.embedded.apiserver.object_cache import StoredChange, ObjectRecord
from moxwell.embedded.apiserver.server import EmbeddedApiServer
from moxwell.kube.client import Kube
from moxwell.lab.proxmox.state import SimRegion
from moxwell.lab.proxmox.world import read_world
from moxwell.testing.loop import LoopClock, run_virtual

CRDS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)
Row = tuple[str, int, bytes]


def fresh_regions(world: str) -> dict[str, SimRegion]:
    """The regions of a world text, as when the clock was at zero."""
    return copy.deepcopy(_regions(world))


@cache
def _regions(world: str) -> dict[str, SimRegion]:
    return read_world(world, "world", 0.0)


def open_store(clock: Clock, *, crds: bool = True) -> EmbeddedApiServer:
    """An embedded API, not yet started, that serves our kinds and those of others."""
    store = EmbeddedApiServer(clock=clock, hooks=Hooks(converters=_converters()))
    for row in _rows() if crds else ():
        store.core.cache.load(StoredChange(ObjectRecord(*row), None, deleted=False))
    return store


def _converters() -> dict[str, Any]:
    plurals = {(k.resource.group, k.resource.kind): k.resource.plural for k in registry.KINDS}
    return {
        f"{plurals[family.group, family.kind]}.{family.group}": partial(_converted, family)
        for family in registry.CONVERSIONS
    }


def _converted(family: KindConversion, obj: dict[str, Any], version: str) -> dict[str, Any]:
    return family.convert(obj, version.rpartition("/")[2])


@cache
def _rows() -> tuple[Row, ...]:
    """All that a store holds once it has the definitions; made on a loop of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: run_virtual(_define())).result()


async def _define() -> tuple[Row, ...]:
    async with EmbeddedApiServer(clock=LoopClock(), hooks=Hooks(converters=_converters())) as store:
        for crd in registry.make_crds():
            await Kube(store).create(crd, CRDS)
        state = store.core.cache
        records = [r for name in state.group_resources() for r in state.table(name).scan()]
        records.sort(key=lambda r: r.revision)
        return tuple((r.group_resource, r.revision, r.body) for r in records)
