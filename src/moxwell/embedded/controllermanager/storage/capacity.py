"""
Free space per class and zone, as CSIStorageCapacity objects: what the scheduler goes by.

One object for each class of the driver and each segment that nodes of the cluster are in; looked at
every half minute and when a node registers. What no node is in has no object.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from moxwell.embedded.controllermanager.resources import NODES
from moxwell.embedded.controllermanager.storage.labels import CAPACITIES, CLASSES, CSI_NODES, Json
from moxwell.embedded.controllermanager.storage.plugin import Plugin
from moxwell.embedded.controllermanager.storage.provisioner import segment
from moxwell.kube.client import Kube
from moxwell.kube.errors import NotFound
from moxwell.runtime.key import Key
from moxwell.runtime.reconciler import Outcome
from moxwell.runtime.watches import Watch

LOOK_SECONDS = 30.0
SPACE, MANAGED = "kube-system", "csi.storage.k8s.io/drivername"
Segment = Mapping[str, str]


class Room:
    """One class."""

    kind = CLASSES
    finalizer = ""

    def __init__(self, kube: Kube, plugin: Plugin, classes: Any) -> None:
        """``classes`` is the cache of them."""
        self._kube, self._plugin = kube, plugin
        self.watches: Sequence[Watch] = (
            Watch(CSI_NODES, lambda _: [Key("", c["metadata"]["name"]) for c in classes.list()]),
        )

    def concerns(self, klass: Json) -> bool:
        return bool(klass["provisioner"] == self._plugin.name)

    async def reconcile(self, klass: Json) -> Outcome[Json]:
        wanted = {object_name(klass, s): s for s in await self._segments()}
        labels = {MANAGED: self._plugin.name}
        have = {
            c["metadata"]["name"]: c
            for c in (await self._kube.list(CAPACITIES, SPACE, labels=labels)).items
            if c["storageClassName"] == klass["metadata"]["name"]
        }
        for name, where in wanted.items():
            await self._put(klass, name, where, have.get(name))
        for name in have.keys() - wanted.keys():
            await self._drop(name)
        return Outcome(None, again=LOOK_SECONDS)

    async def _segments(self) -> list[Segment]:
        found: list[Segment] = []
        for node in (await self._kube.list(NODES)).items:
            where = await segment(self._kube, node, self._plugin.name)
            if where and where not in found:
                found.append(where)
        return found

    async def _put(self, klass: Json, name: str, where: Segment, have: Json | None) -> None:
        free, most = await self._plugin.room(klass.get("parameters") or {}, where)
        amounts = {"capacity": str(free), "maximumVolumeSize": str(most)}
        if have is None:
            await self._kube.create(
                _body(klass, name, where, self._plugin.name, amounts), CAPACITIES
            )
        elif any(have.get(key) != value for key, value in amounts.items()):
            await self._kube.merge(CAPACITIES, name, amounts, SPACE)

    async def _drop(self, name: str) -> None:
        try:
            await self._kube.delete(CAPACITIES, name, SPACE)
        except NotFound:
            return


def object_name(klass: Json, where: Segment) -> str:
    """Always the same for a class and a segment."""
    text = json.dumps([klass["metadata"]["uid"], sorted(where.items())])
    return "csisc-" + hashlib.sha256(text.encode()).hexdigest()[:16]


def _body(klass: Json, name: str, where: Segment, driver: str, amounts: Json) -> Json:
    return {
        "apiVersion": CAPACITIES.api_version,
        "kind": CAPACITIES.kind,
        "metadata": {"name": name, "namespace": SPACE, "labels": {MANAGED: driver}},
        "storageClassName": klass["metadata"]["name"],
        "nodeTopology": {"matchLabels": dict(where)},
        **amounts,
    }
