"""
CPU and memory that simulated containers and nodes use, for ``kubectl top``.

A container uses a part of what it requests, which moves slowly with time. A node uses what its
simulated VM reports to Proxmox, and at least the sum of its pods.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moxwell.api import quantity

Json = Mapping[str, Any]
IDLE_CPU, IDLE_MEMORY = 0.002, 12 << 20  # of a container without requests
TYPICAL_SHARE = 0.4  # of its request for CPU that a container uses on average
PERIOD_SECONDS = 600.0
MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """Cores and bytes in use."""

    cpu: float
    memory: int

    def as_json(self) -> dict[str, str]:
        """As in the metrics API."""
        return {"cpu": f"{int(self.cpu * 1e9)}n", "memory": f"{self.memory // 1024}Ki"}


@dataclass(frozen=True, slots=True)
class VmLoad:
    """What the VM of a node reports: shares of its vCPUs and of its memory."""

    cpu: float
    memory: float


def container_usage(pod: Json, container: Json, now: datetime) -> ResourceUsage:
    """What one container uses at a time."""
    wave = _wave(f"{pod['metadata']['uid']}/{container['name']}", now)
    return _usage(container, TYPICAL_SHARE + 0.2 * (wave - 0.5))


def _usage(container: Json, share: float) -> ResourceUsage:
    """What a container uses that takes this share of the CPU time that it requests."""
    requests = (container.get("resources") or {}).get("requests") or {}
    cpu = quantity.cores(requests.get("cpu", 0)) * share
    memory = int(quantity.mebibytes(requests.get("memory", 0)) * MEBIBYTE * (share + 0.2))
    return ResourceUsage(max(cpu, IDLE_CPU), max(memory, IDLE_MEMORY))


def pod_usage(pod: Json, now: datetime) -> dict[str, ResourceUsage]:
    """What the containers of a running pod use, by name."""
    containers = pod["spec"].get("containers") or ()
    return {str(c["name"]): container_usage(pod, c, now) for c in containers}


def typical_usage(pods: Iterable[Json]) -> ResourceUsage:
    """What the containers of running pods use on average over time."""
    found = [
        _usage(container, TYPICAL_SHARE)
        for pod in pods
        for container in pod["spec"].get("containers") or ()
    ]
    return ResourceUsage(sum(row.cpu for row in found), sum(row.memory for row in found))


def node_usage(
    pods: Iterable[Json], load: VmLoad, cpus: int, memory_mib: int, now: datetime
) -> ResourceUsage:
    """What a node uses at a time."""
    rows = [row for pod in pods for row in pod_usage(pod, now).values()]
    cpu = max(load.cpu * cpus, sum(row.cpu for row in rows))
    memory = max(int(load.memory * memory_mib * MEBIBYTE), sum(row.memory for row in rows))
    return ResourceUsage(min(cpu, float(cpus)), min(memory, memory_mib * MEBIBYTE))


def _wave(name: str, now: datetime) -> float:
    """A value from 0 to 1 that moves slowly, with a phase of its own for each name."""
    phase = hashlib.sha256(name.encode()).digest()[0] / 256
    return (math.sin(2 * math.pi * (now.timestamp() / PERIOD_SECONDS + phase)) + 1) / 2
