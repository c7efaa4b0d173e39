"""
The CSIStorageCapacity objects of a StorageClass, which the scheduler reads. Pure.

There is one object for each class of the driver and each topology segment of a node.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moxwell.embedded.controllermanager.resources import CSI_STORAGE_CAPACITIES
from moxwell.embedded.writing import WriteMove
from moxwell.runtime.move import Done
from moxwell.runtime.writes import Create, Delete, Merge, Write, Writes

Json = dict[str, Any]
CHECK_SECONDS = 30.0
NAMESPACE, DRIVER_LABEL = "kube-system", "csi.storage.k8s.io/drivername"


@dataclass(frozen=True, slots=True)
class SegmentCapacity:
    """The free bytes of a segment and the largest volume that can be created there."""

    segment: Mapping[str, str]
    free: int
    largest: int

    @property
    def amounts(self) -> dict[str, str]:
        return {"capacity": str(self.free), "maximumVolumeSize": str(self.largest)}


@dataclass(frozen=True, slots=True)
class ObservedCapacity:
    """The driver's answer for every segment, and the objects of the class."""

    driver: str
    segments: tuple[SegmentCapacity, ...] = ()
    objects: tuple[Json, ...] = ()


def next_move(storage_class: Json, seen: ObservedCapacity) -> WriteMove:
    """Create, update and delete objects; check again after half a minute."""
    present = {o["metadata"]["name"]: o for o in seen.objects}
    desired = {object_name(storage_class, s.segment): s for s in seen.segments}
    writes: list[Write] = []
    for name, capacity in desired.items():
        found = present.get(name)
        if found is None:
            body = new_object(storage_class, name, capacity, seen.driver)
            writes.append(Create(body, CSI_STORAGE_CAPACITIES))
        elif any(found.get(key) != value for key, value in capacity.amounts.items()):
            writes.append(Merge(CSI_STORAGE_CAPACITIES, name, capacity.amounts, NAMESPACE))
    for name in sorted(present.keys() - desired.keys()):
        writes.append(Delete(CSI_STORAGE_CAPACITIES, name, NAMESPACE))
    return Writes(tuple(writes), requeue_after=CHECK_SECONDS) if writes else Done(CHECK_SECONDS)


def object_name(storage_class: Json, segment: Mapping[str, str]) -> str:
    """The name of the object of a class and a segment."""
    text = json.dumps([storage_class["metadata"]["uid"], sorted(segment.items())])
    return "csisc-" + hashlib.sha256(text.encode()).hexdigest()[:16]


def new_object(storage_class: Json, name: str, capacity: SegmentCapacity, driver: str) -> Json:
    return {
        "apiVersion": CSI_STORAGE_CAPACITIES.api_version,
        "kind": CSI_STORAGE_CAPACITIES.kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {DRIVER_LABEL: driver}},
        "storageClassName": storage_class["metadata"]["name"],
        "nodeTopology": {"matchLabels": dict(capacity.segment)},
        **capacity.amounts,
    }
