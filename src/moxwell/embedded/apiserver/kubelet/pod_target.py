"""Chooses the node and the container of a request to a pod, with kube-apiserver's errors. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moxwell.embedded.apiserver import status_errors

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodTarget:
    """A container of a pod on a node; ``node`` is empty for a pod that is not scheduled."""

    node: str
    namespace: str
    pod: str
    container: str = ""


@dataclass(frozen=True, slots=True)
class PodConnection:
    """An authorized exec, attach or port-forward request, which the HTTP server upgrades."""

    action: str  # exec, portforward
    target: PodTarget
    query: tuple[tuple[str, str], ...]


def choose_container(pod: Json, wanted: str) -> str:
    """The container of a request; raises a bad request if it is not clear."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    containers = [str(c["name"]) for c in spec.get("containers") or ()]
    others = [str(c["name"]) for c in spec.get("initContainers") or ()]
    if wanted:
        if wanted in (*containers, *others):
            return wanted
        raise status_errors.bad_request(f"container {wanted} is not valid for pod {name}")
    if len(containers) == 1:
        return containers[0]
    shown = f"a container name must be specified for pod {name}, choose one of: "
    shown += f"[{' '.join(containers)}]"
    if others:
        shown += f" or one of the init containers: [{' '.join(others)}]"
    raise status_errors.bad_request(shown)


def choose_target(pod: Json, wanted: str, *, container: bool) -> PodTarget:
    """The node and the container of a request to a pod."""
    meta, node = pod["metadata"], str(pod["spec"].get("nodeName") or "")
    chosen = choose_container(pod, wanted) if container else ""
    return PodTarget(node, str(meta["namespace"]), str(meta["name"]), chosen)
