"""
New simulated regions and embedded API servers, copied from ones created once per process.

Validating and compiling all CRDs takes longer than a test on virtual time, so the stored CRDs are
loaded into each new server as after a restart.
"""

import copy
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

from moxwell.api import registry
from moxwell.api.conversion import KindConversion
from moxwell.api.kinds import Resource
from moxwell.clock import Clock
from moxwell.embedded.apiserver.hooks import AdmitHook, Hooks
from moxwell.embedded.apiserver.object_cache import ObjectRecord, StoredChange
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
    """The regions of a world file at time zero."""
    return copy.deepcopy(_regions(world))


@cache
def _regions(world: str) -> dict[str, SimRegion]:
    return read_world(world, "world", 0.0)


def open_store(
    clock: Clock, *, crds: bool = True, admit: AdmitHook = lambda review: ()
) -> EmbeddedApiServer:
    """An embedded API server, not started, with the CRDs of Moxwell and Cluster API."""
    store = EmbeddedApiServer(clock=clock, hooks=Hooks(admit=admit, converters=_converters()))
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
    """The stored objects of a server after all CRDs are created; runs in its own event loop."""
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
