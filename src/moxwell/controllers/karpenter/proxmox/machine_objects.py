"""
The objects of a node claim's machine in the management cluster. Pure.

The Machine is created first, with the record of what was chosen; it owns the others, so that
nothing is left over when it is deleted. What the operator sets for all machines of a cluster (the
network, its firewall groups) cannot be replaced by a node class.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from moxwell.api.capi.core import VERSION, Machine
from moxwell.api.capi.shared import BOOTSTRAP, CLUSTER_NAME, GROUP
from moxwell.api.infra.machine import GROUP as INFRA
from moxwell.api.infra.machine import HUB
from moxwell.api.karpenter.nodeclaims import NodeClaim
from moxwell.api.karpenter.proxmox import ProxmoxNodeClass
from moxwell.api.kinds import owner_reference
from moxwell.controllers.karpenter.proxmox.instance_record import (
    CLAIM_NAME,
    CLAIM_UID,
    INSTANCE,
    InstanceRecord,
    guest_name,
    record_text,
    uid_label,
)
from moxwell.controllers.karpenter.proxmox.kubelet_settings import registration_taints
from moxwell.controllers.karpenter.proxmox.scope import MachineDefaults
from moxwell.pve import firewall_groups
from moxwell.runtime.key import Key

Json = dict[str, Any]
DRAIN_SECONDS = 60  # the autoscaler has drained the node before it deletes the machine
PATCHES = "/etc/kubernetes/patches"
KUBELET_PATCH = f"{PATCHES}/kubeletconfiguration0+merge.json"
_KUBELET_LABELS = ("node.kubernetes.io", "kubelet.kubernetes.io")
_KUBERNETES_DOMAINS = ("kubernetes.io", "k8s.io")


def machine(
    cluster: Key, name: str, claim: NodeClaim, record: InstanceRecord, bootstrap: Json, version: str
) -> Json:
    """The Machine; ``bootstrap`` is its ``spec.bootstrap``."""
    spec: Json = {
        "clusterName": cluster.name,
        "bootstrap": bootstrap,
        "infrastructureRef": {
            "apiGroup": INFRA,
            "kind": "ProxmoxMachine",
            "name": record.warm_guest or name,
        },
        "deletion": {
            "nodeDrainTimeoutSeconds": DRAIN_SECONDS,
            "nodeVolumeDetachTimeoutSeconds": DRAIN_SECONDS,
        },
    }
    spec |= {"version": version} if version else {}
    spec |= {"failureDomain": record.failure_domain} if record.failure_domain else {}
    metadata = _metadata(cluster, name, claim.uid)
    metadata["annotations"] = {CLAIM_NAME: claim.name, INSTANCE: record_text(record)}
    head = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Machine"}
    return head | {"metadata": metadata, "spec": spec}


def proxmox_machine(
    owner: Machine,
    record: InstanceRecord,
    node_class: ProxmoxNodeClass,
    defaults: MachineDefaults,
    devices: Iterable[Json] = (),
) -> Json:
    """The ProxmoxMachine of a Machine; ``devices`` count if the operator's settings have none."""
    spec = defaults_without(defaults, "templateName", "templateSelector", "zones") | {
        "instanceType": record.instance_type,
        "numSockets": record.sockets,
        "numCores": record.cpus // record.sockets,
        "networkQueues": "PerCPU",
        "memoryMiB": record.memory_mib,
        "disks": {"bootVolume": {"sizeGb": record.disk_gib}},
        "region": record.region,
        "target": record.host,
        "spread": "Ignore",
        "templateID": record.template,
        "sourceNode": record.template_host,
        "checks": _checks(node_class),
        "description": f"Node claim {owner.metadata.annotations.get(CLAIM_NAME, '')}",
    }
    spec |= _cpu_placement(record)
    spec |= boot_storage(node_class)
    spec |= changeable_spec(node_class, defaults)
    if not spec.get("network") and (given := list(devices)):
        spec["network"] = {"networkDevices": given}
    if node_class.spec.security_groups:
        spec["network"] = _filtered_network(spec.get("network") or {}, node_class)
    return owned_proxmox_machine(owner, spec)


def owned_proxmox_machine(owner: Machine, spec: Json) -> Json:
    """A ProxmoxMachine that a Machine owns."""
    return _owned(owner, f"{INFRA}/{HUB}", "ProxmoxMachine") | {"spec": spec}


def defaults_without(defaults: MachineDefaults, *names: str) -> Json:
    """The operator's settings without some fields, which a launch decides."""
    return {name: value for name, value in defaults.spec.items() if name not in names}


def boot_storage(node_class: ProxmoxNodeClass) -> Json:
    """The storage of the boot disk; the template decides it if the node class does not."""
    storage = node_class.spec.boot_device.storage
    return {"storage": storage, "full": True} if storage else {}


def _cpu_placement(record: InstanceRecord) -> Json:
    """The NUMA nodes, pinned CPUs and huge pages that the launch chose."""
    spec: Json = {}
    if record.numa_nodes:
        spec["numaNodes"] = msgspec.to_builtins(record.numa_nodes)
        spec["balloonMiB"] = 0  # bound memory does not shrink
    if record.cpu_pinning:
        spec["cpuPinning"] = msgspec.to_builtins(record.cpu_pinning)
    if record.huge_pages_mib:
        spec["hugePagesMiB"] = record.huge_pages_mib
    return spec


def _checks(node_class: ProxmoxNodeClass) -> Json:
    """
    The Node shows when the bootstrap has finished, so that the guest agent is not polled.

    A template of a Secret may make a guest without an agent.
    """
    without_agent = node_class.spec.metadata_options.type == "cdrom"
    agent = {"skipQemuGuestAgent": True} if without_agent else {}
    return {"skipCloudInitStatus": True} | agent


def changeable_spec(node_class: ProxmoxNodeClass, defaults: MachineDefaults) -> Json:
    """The fields that are changed in place: tags, security groups, resource pool."""
    spec = node_class.spec
    tags = dict.fromkeys((*(defaults.spec.get("tags") or ()), *spec.tags))
    whole = defaults.firewall_groups  # for all devices
    own = (
        firewall_groups.for_device(g.name, g.interface)
        for g in spec.security_groups
        if g.name not in whole
    )
    groups = dict.fromkeys((*whole, *own))
    pool = spec.resource_pool or defaults.spec.get("pool")
    return {"tags": list(tags), "firewallGroups": list(groups)} | ({"pool": pool} if pool else {})


def _filtered_network(network: Mapping[str, Any], node_class: ProxmoxNodeClass) -> Json:
    """The network with the firewall enabled on those of its devices that have security groups."""
    wanted = {group.interface for group in node_class.spec.security_groups}
    devices = network.get("networkDevices") or [{"name": "net0"}]
    filtered = [d | ({"firewall": True} if d["name"] in wanted else {}) for d in devices]
    return dict(network) | {"networkDevices": filtered}


def kubeadm_config(owner: Machine, claim: NodeClaim, patch: Json) -> Json:
    """The KubeadmConfig of a Machine; ``patch`` changes the kubelet's configuration."""
    labels = ",".join(f"{key}={value}" for key, value in sorted(settable_labels(claim).items()))
    args = [
        {"name": "cloud-provider", "value": "external"},
        {"name": "provider-id", "value": "proxmox://{{ ds.meta_data.instance_id }}"},
    ]
    args += [{"name": "node-labels", "value": labels}] if labels else []
    join: Json = {
        "nodeRegistration": {
            "name": "{{ local_hostname }}",
            "kubeletExtraArgs": args,
            "taints": list(registration_taints(claim)),
        },
        "patches": {"directory": PATCHES},
    }
    body = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"} | patch
    text = json.dumps(body, sort_keys=True)
    file = {"path": KUBELET_PATCH, "owner": "root:root", "permissions": "0644", "content": text}
    spec = {"joinConfiguration": join, "files": [file]}
    return _owned(owner, f"{BOOTSTRAP}/v1beta2", "KubeadmConfig") | {"spec": spec}


def settable_labels(claim: NodeClaim) -> dict[str, str]:
    """The labels of a claim that a kubelet may set; the autoscaler adds the others."""
    return {k: v for k, v in claim.metadata.labels.items() if _kubelet_may_set(k)}


def _kubelet_may_set(label: str) -> bool:
    domain = label.partition("/")[0] if "/" in label else ""
    if domain.endswith(_KUBELET_LABELS):
        return True
    return not any(domain == d or domain.endswith(f".{d}") for d in _KUBERNETES_DOMAINS)


def bootstrap_secret(owner: Machine, data: Mapping[str, str]) -> Json:
    """The Secret with the bootstrap data of a Machine."""
    head = _owned(owner, "v1", "Secret")
    return head | {"type": "cluster.x-k8s.io/secret", "stringData": dict(data)}


def _owned(owner: Machine, api_version: str, kind: str) -> Json:
    reference = owner_reference(owner)
    metadata: Json = {
        "name": guest_name(owner),
        "namespace": owner.namespace,
        "labels": {k: owner.metadata.labels[k] for k in (CLUSTER_NAME, CLAIM_UID)},
        "ownerReferences": [
            {
                "apiVersion": reference.api_version,
                "kind": reference.kind,
                "name": reference.name,
                "uid": reference.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _metadata(cluster: Key, name: str, uid: str) -> Json:
    labels = {CLUSTER_NAME: cluster.name, CLAIM_UID: uid_label(uid)}
    return {"name": name, "namespace": cluster.namespace, "labels": labels}
