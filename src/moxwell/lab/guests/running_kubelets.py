"""The kubelets that run now, by cluster and node, for requests to their containers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moxwell.errors import Missing
from moxwell.lab.guests import pod_usage
from moxwell.lab.guests.kubelet import NodeFacts
from moxwell.lab.guests.pod_usage import VmLoad
from moxwell.lab.guests.pods import is_running

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunningKubelet:
    """One kubelet: its node and its pods."""

    facts: NodeFacts
    pods: Callable[[], Mapping[str, Json]]  # by UID
    load: Callable[[], VmLoad]

    def find(self, namespace: str, name: str) -> Json:
        """The pod of a name; raises Missing."""
        for pod in self.pods().values():
            if (pod["metadata"]["namespace"], pod["metadata"]["name"]) == (namespace, name):
                return pod
        raise Missing(f"pod {namespace}/{name} does not run on node {self.facts.name}")

    def usage(self, now: datetime) -> Json:
        """What the node and its running pods use, as in the metrics API."""
        running = [p for p in self.pods().values() if is_running(p)]
        facts = self.facts
        node = pod_usage.node_usage(running, self.load(), facts.cpus, facts.memory_mib, now)
        return {"usage": node.as_json(), "pods": [_pod_metrics(pod, now) for pod in running]}


class RunningKubelets:
    """All running kubelets of a lab."""

    def __init__(self) -> None:
        self._kubelets: dict[tuple[str, str], RunningKubelet] = {}

    def add(self, cluster: str, kubelet: RunningKubelet) -> Callable[[], None]:
        """Register a kubelet; returns what removes it again."""
        key = cluster, kubelet.facts.name
        self._kubelets[key] = kubelet

        def remove() -> None:
            if self._kubelets.get(key) is kubelet:
                del self._kubelets[key]

        return remove

    def get(self, cluster: str, node: str) -> RunningKubelet:
        """The kubelet of a node; raises Missing if it does not run."""
        found = self._kubelets.get((cluster, node))
        if found is None:
            raise Missing(f"the simulated kubelet of node {node} does not run")
        return found

    def usage(self, cluster: str, now: datetime) -> dict[str, Json]:
        """The usage of all nodes of a cluster, by name."""
        found = {node: k for (name, node), k in self._kubelets.items() if name == cluster}
        return {node: kubelet.usage(now) for node, kubelet in found.items()}


def _pod_metrics(pod: Json, now: datetime) -> Json:
    rows = pod_usage.pod_usage(pod, now)
    return {
        "namespace": pod["metadata"]["namespace"],
        "name": pod["metadata"]["name"],
        "containers": [{"name": name, "usage": row.as_json()} for name, row in rows.items()],
    }
