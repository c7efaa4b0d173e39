"""
A simulated kubelet: registers its Node, renews its Lease, reports status and runs pods.

Creates the Node with the labels, taints and provider ID of the kubelet arguments. When the guest
stops, the kubelet stops without updating the API; the node lifecycle controller detects it by the
expired Lease.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moxwell.api.kinds import Resource
from moxwell.api.meta import micro_time
from moxwell.clock import Clock
from moxwell.errors import Conflict, Denied, Missing, Retryable
from moxwell.kube.client import Kube
from moxwell.lab.guests.pod_usage import ResourceUsage, typical_usage
from moxwell.lab.guests.pod_watch import PodWatch
from moxwell.lab.guests.pods import PodRunner, is_running
from moxwell.lab.guests.volumes import VolumeManager

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
LEASE_SECONDS = 40
RENEW_SECONDS = 10
STATUS_SECONDS = 300
RETRY_SECONDS = 3
ATTACHED_BY_CONTROLLER = "volumes.kubernetes.io/controller-managed-attach-detach"
UNINITIALIZED = {
    "key": "node.cloudprovider.kubernetes.io/uninitialized",
    "value": "true",
    "effect": "NoSchedule",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The properties of a node that its kubelet reports."""

    name: str
    uuid: str
    version: str
    cpus: int
    memory_mib: int
    addresses: tuple[str, ...]
    args: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] = ()


def labels(facts: NodeFacts) -> dict[str, str]:
    """The default labels and those of ``--node-labels``."""
    own = {
        "kubernetes.io/hostname": facts.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
    }
    given = (pair.partition("=") for pair in facts.args.get("node-labels", "").split(",") if pair)
    return own | {key.strip(): value.strip() for key, _, value in given}


def taints(facts: NodeFacts) -> list[dict[str, Any]]:
    """
    The taints of the kubeadm configuration, of ``--register-with-taints``, and ``uninitialized``.
    """
    found = [dict(t) for t in facts.taints]
    for text in facts.args.get("register-with-taints", "").split(","):
        key_value, _, effect = text.strip().rpartition(":")
        key, _, value = key_value.partition("=")
        if key:
            found.append({"key": key, "effect": effect} | ({"value": value} if value else {}))
    if _is_external(facts):
        found.append(dict(UNINITIALIZED))
    return found


def as_node(facts: NodeFacts) -> dict[str, Any]:
    """The Node as the kubelet registers it."""
    spec: dict[str, Any] = {}
    if given := taints(facts):
        spec["taints"] = given
    if provider := facts.args.get("provider-id", "").replace("'", ""):
        spec["providerID"] = provider
    annotations = {ATTACHED_BY_CONTROLLER: "true"}
    if ip := facts.args.get("node-ip"):
        annotations["alpha.kubernetes.io/provided-node-ip"] = ip
    meta = {"name": facts.name, "labels": labels(facts), "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec}


def as_status(facts: NodeFacts, now: str) -> dict[str, Any]:
    """The status of a healthy node."""
    capacity = {
        "cpu": str(facts.cpus),
        "memory": f"{facts.memory_mib * 1024}Ki",
        "pods": facts.args.get("max-pods", "110"),
        "ephemeral-storage": "20Gi",
    }
    return {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": [_ready(now), *(_no_pressure(kind, now) for kind in _PRESSURES)],
        "nodeInfo": _info(facts),
    }


def own_addresses(facts: NodeFacts) -> list[dict[str, str]]:
    """With an external cloud provider only those of ``--node-ip``; it sets the others."""
    found = [a.split("/")[0] for a in facts.addresses]
    if _is_external(facts):
        found = [a.strip() for a in facts.args.get("node-ip", "").split(",") if a.strip()]
    rows = [{"type": "InternalIP", "address": a} for a in found]
    return [*rows, {"type": "Hostname", "address": facts.name}]


def _is_external(facts: NodeFacts) -> bool:
    return facts.args.get("cloud-provider") == "external"


_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")


def _ready(now: str) -> dict[str, Any]:
    return _condition("Ready", "True", "KubeletReady", "kubelet is posting ready status", now)


def _no_pressure(kind: str, now: str) -> dict[str, Any]:
    return _condition(kind, "False", "KubeletHasNoPressure", f"kubelet has no {kind}", now)


def _condition(kind: str, status: str, reason: str, message: str, now: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


def _info(facts: NodeFacts) -> dict[str, str]:
    return {
        "machineID": facts.uuid.replace("-", ""),
        "systemUUID": facts.uuid,
        "bootID": facts.uuid,
        "kernelVersion": "6.8.0-sim",
        "osImage": "Ubuntu 24.04 LTS (simulated)",
        "containerRuntimeVersion": "containerd://2.0.0",
        "kubeletVersion": facts.version,
        "kubeProxyVersion": facts.version,
        "operatingSystem": "linux",
        "architecture": "amd64",
    }


def as_owner(name: str, uid: str) -> dict[str, Any]:
    """The owner of a node's lease, so that the lease is deleted with the Node."""
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}


class SimulatedKubelet:
    """The kubelet of one node; runs as long as the guest."""

    def __init__(
        self,
        kube: Kube,
        facts: NodeFacts,
        clock: Clock,
        live_config: Callable[[], Mapping[str, Any]] = dict,
        pods: PodWatch | None = None,
        report_usage: Callable[[ResourceUsage], None] = lambda usage: None,
    ) -> None:
        """``report_usage`` is called with what the pods use when one of them changed."""
        self._kube, self._report_usage = kube, report_usage
        self._facts = facts
        self._clock = clock
        self._volumes = VolumeManager(kube, facts.name, live_config, clock)
        self._pods = PodRunner(kube, facts.name, clock, self._volumes, pods, self._report)
        self._renewed = clock.monotonic()
        self._uid = self._lease_owner = ""  # of the Node, and of the owner of the lease

    @property
    def pods(self) -> Mapping[str, dict[str, Any]]:
        """The pods of this node by UID."""
        return self._pods.pods

    def _report(self) -> None:
        self._report_usage(typical_usage(filter(is_running, self.pods.values())))

    async def register(self) -> None:
        """Create the Node if it does not exist and update its status; idempotent."""
        try:
            await self._kube.create(as_node(self._facts), NODES)
        except Conflict:  # exists: the guest restarted
            await self._update_status()
        else:
            await self._update_status(new=True)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._retry(self.register)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._every(RENEW_SECONDS, self._renew))
            group.create_task(self._every(STATUS_SECONDS, self._update_status))
            group.create_task(self._pods.run())
            group.create_task(self._volumes.run())

    async def _every(self, seconds: float, action: Any) -> None:
        while True:
            await self._retry(action)
            await self._clock.sleep(seconds)

    async def _retry(self, action: Any) -> None:
        while True:
            try:
                await action()
            except (Retryable, Denied):
                await self._clock.sleep(RETRY_SECONDS)
            except Missing:
                await self._clock.sleep(RETRY_SECONDS)
                action = self.register  # the Node was deleted
            else:
                return

    async def _update_status(self, *, new: bool = False) -> None:
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        status = as_status(self._facts, now)
        if new or not _is_external(self._facts):
            status["addresses"] = own_addresses(self._facts)
        node = await self._kube.merge(
            NODES, self._facts.name, {"status": status}, subresource="status"
        )
        self._uid = str(node["metadata"]["uid"])

    async def _renew(self) -> None:
        name, at = self._facts.name, micro_time(self._clock.now())
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": at}
        owned = {"ownerReferences": [as_owner(name, self._uid)]}
        change = (
            {"spec": spec} if self._lease_owner == self._uid else {"spec": spec, "metadata": owned}
        )
        try:
            await self._kube.merge(LEASES, name, change, "kube-node-lease")
        except Missing:
            meta = {"name": name, "namespace": "kube-node-lease", **owned}
            lease = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": meta}
            await self._kube.create(lease | {"spec": spec}, LEASES)
        self._lease_owner = self._uid
        if self._clock.monotonic() - self._renewed > 2 * RENEW_SECONDS:
            await self._update_status()  # the conditions may have been set to Unknown
        self._renewed = self._clock.monotonic()
