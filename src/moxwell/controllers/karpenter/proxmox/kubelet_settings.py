"""
The kubelet's configuration of a node: fields of the node class, and what the size reserves. Pure.

It is a patch of kubeadm, or ``.Kubernetes.KubeletConfiguration`` in templates of a node class.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.proxmox import NodeKubeletConfiguration
from moxwell.scheduling.guest_sizes import EPHEMERAL_STORAGE, GuestOverhead
from moxwell.scheduling.resource_lists import CPU, MEMORY, MILLI, ResourceList

Json = dict[str, Any]
UNREGISTERED_TAINT = "karpenter.sh/unregistered"
MEMORY_AVAILABLE = "memory.available"
EVICTION_HARD: Mapping[str, str] = {
    "imagefs.available": "15%",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
}  # the kubelet's defaults, which it drops if any threshold is set
_MIB, _GIB = 1 << 20, 1 << 30


def registration_taints(claim: NodeClaim) -> tuple[Json, ...]:
    """The taints with which the node registers; the API allows each key and effect once."""
    given = (*claim.spec.taints, *claim.spec.startup_taints)
    taints: dict[tuple[str, str], Json] = {
        (t.key, t.effect): {"key": t.key, "effect": t.effect}
        | ({"value": t.value} if t.value else {})
        for t in given
    }
    own = (UNREGISTERED_TAINT, "NoExecute")
    taints.setdefault(own, {"key": own[0], "effect": own[1]})
    return tuple(taints.values())


def reservations(overhead: GuestOverhead) -> Json:
    """The fields of the kubelet's configuration that reserve resources."""
    fields: Json = {
        "kubeReserved": reserved_texts(overhead.kube),
        "systemReserved": reserved_texts(overhead.system),
    }
    if memory := reserved_texts(overhead.eviction).get(MEMORY):
        fields["evictionHard"] = {**EVICTION_HARD, MEMORY_AVAILABLE: memory}
    return {name: value for name, value in fields.items() if value}


def reserved_texts(amounts: ResourceList) -> dict[str, str]:
    """Amounts with the units that the provider uses: millicores, MiB and GiB."""
    texts = {
        CPU: (amounts.get(CPU, 0), "m"),
        MEMORY: (amounts.get(MEMORY, 0) // MILLI // _MIB, "Mi"),
        EPHEMERAL_STORAGE: (amounts.get(EPHEMERAL_STORAGE, 0) // MILLI // _GIB, "Gi"),
    }
    return {name: f"{amount}{unit}" for name, (amount, unit) in texts.items() if amount > 0}


def kubelet_patch(given: NodeKubeletConfiguration | None, overhead: GuestOverhead) -> Json:
    """A patch of the KubeletConfiguration."""
    fields: Json = msgspec.to_builtins(given) if given is not None else {}
    return fields | reservations(overhead)
