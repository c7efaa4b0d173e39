"""
The options of a node group from annotations of its MachineDeployment. Pure.

The annotations are those of Cluster Autoscaler's ``clusterapi`` provider; what is missing or
malformed keeps the default of the caller.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.duration_pb2 import Duration

from moxwell.scheduling.packing.rescheduling import duration_seconds

PREFIX = "cluster.x-k8s.io/autoscaling-options-"


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) and found >= 0 else None


def _duration(text: str) -> Duration | None:
    seconds = duration_seconds(text)
    if seconds is None or seconds < 0:
        return None
    made = Duration()
    made.FromMilliseconds(round(seconds * 1000))
    return made


def _flag(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


_READERS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "scaledownutilizationthreshold": ("scaleDownUtilizationThreshold", _number),
    "scaledowngpuutilizationthreshold": ("scaleDownGpuUtilizationThreshold", _number),
    "scaledownunneededtime": ("scaleDownUnneededDuration", _duration),
    "scaledownunreadytime": ("scaleDownUnreadyDuration", _duration),
    "maxnodeprovisiontime": ("MaxNodeProvisionDuration", _duration),
    "zeroormaxnodescaling": ("zeroOrMaxNodeScaling", _flag),
    "ignoredaemonsetsutilization": ("ignoreDaemonSetsUtilization", _flag),
}


def chosen_options(annotations: Mapping[str, str]) -> dict[str, Any]:
    """The fields of ``NodeGroupAutoscalingOptions`` that a group has its own values for."""
    found = {
        name: read(annotations[key])
        for suffix, (name, read) in _READERS.items()
        if (key := f"{PREFIX}{suffix}") in annotations
    }
    return {name: value for name, value in found.items() if value is not None}
