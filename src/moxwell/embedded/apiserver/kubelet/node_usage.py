"""Reads a kubelet's ``/stats/summary``: what a node and the containers of its pods use. Pure."""

from typing import Any

import msgspec


class _Cpu(msgspec.Struct, frozen=True):
    usage: int = msgspec.field(name="usageNanoCores", default=0)


class _Memory(msgspec.Struct, frozen=True):
    used: int = msgspec.field(name="workingSetBytes", default=0)


class _Stats(msgspec.Struct, frozen=True):
    name: str = ""
    cpu: _Cpu = _Cpu()
    memory: _Memory = _Memory()

    def quantities(self) -> dict[str, str]:
        return {"cpu": f"{self.cpu.usage}n", "memory": f"{self.memory.used >> 10}Ki"}


class _PodRef(msgspec.Struct, frozen=True):
    name: str
    namespace: str


class _Pod(msgspec.Struct, frozen=True):
    ref: _PodRef = msgspec.field(name="podRef")
    containers: tuple[_Stats, ...] = ()


class _Summary(msgspec.Struct, frozen=True):
    node: _Stats
    pods: tuple[_Pod, ...] = ()


def read(data: bytes) -> dict[str, Any]:
    """The usage of a node in the form of the lab's kubelets; MsgspecError if it is none."""
    found = msgspec.json.decode(data, type=_Summary)
    pods = [
        {
            "namespace": pod.ref.namespace,
            "name": pod.ref.name,
            "containers": [{"name": c.name, "usage": c.quantities()} for c in pod.containers],
        }
        for pod in found.pods
        if pod.containers
    ]
    return {"usage": found.node.quantities(), "pods": pods}
