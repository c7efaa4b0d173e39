"""The workload cluster of the comparison, in CAPMOX's API version v1alpha2, which both serve."""

from typing import Any

import yaml

INFRA, VERSION = "infrastructure.cluster.x-k8s.io", "v1.34.1"
PROVIDER_ID = {"name": "provider-id", "value": "proxmox://'{{ ds.meta_data.instance_id }}'"}
DEVICE = {"name": "net0", "bridge": "vmbr0", "model": "virtio", "defaultIPv4": True}
Json = dict[str, Any]


def cluster_manifest(name: str, workers: int, port: int, **more: int) -> str:
    """A cluster with one control plane machine and workers; ``more`` are fields of machines."""
    objects = [
        _object("cluster.x-k8s.io/v1beta2", "Cluster", name, _cluster(name)),
        _object(f"{INFRA}/v1alpha2", "ProxmoxCluster", name, _infrastructure(port)),
        _object(
            "controlplane.cluster.x-k8s.io/v1beta2",
            "KubeadmControlPlane",
            name,
            _control_plane(name),
        ),
        _object(f"{INFRA}/v1alpha2", "ProxmoxMachineTemplate", name, _machine_template(more)),
        _object(
            "cluster.x-k8s.io/v1beta2",
            "MachineDeployment",
            f"{name}-workers",
            _deployment(name, workers),
        ),
        _object(
            "bootstrap.cluster.x-k8s.io/v1beta2",
            "KubeadmConfigTemplate",
            name,
            {"template": {"spec": {"joinConfiguration": _registration()}}},
        ),
    ]
    return yaml.safe_dump_all(objects)


def _object(api: str, kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _reference(group: str, kind: str, name: str) -> Json:
    return {"apiGroup": group, "kind": kind, "name": name}


def _registration() -> Json:
    return {"nodeRegistration": {"kubeletExtraArgs": [PROVIDER_ID]}}


def _cluster(name: str) -> Json:
    return {
        "clusterNetwork": {"pods": {"cidrBlocks": ["192.168.0.0/16"]}},
        "infrastructureRef": _reference(INFRA, "ProxmoxCluster", name),
        "controlPlaneRef": _reference("controlplane.cluster.x-k8s.io", "KubeadmControlPlane", name),
    }


def _infrastructure(port: int) -> Json:
    return {
        "controlPlaneEndpoint": {"host": "127.20.0.9", "port": port},
        "ipv4Config": {
            "addresses": ["10.20.0.10-10.20.0.250"],
            "prefix": 24,
            "gateway": "10.20.0.1",
        },
        "dnsServers": ["10.20.0.2"],
        "allowedNodes": ["pve1", "pve2", "pve3"],
    }


def _control_plane(name: str) -> Json:
    return {
        "replicas": 1,
        "version": VERSION,
        "machineTemplate": {
            "spec": {"infrastructureRef": _reference(INFRA, "ProxmoxMachineTemplate", name)}
        },
        "kubeadmConfigSpec": {
            "initConfiguration": _registration(),
            "joinConfiguration": _registration(),
        },
    }


def _machine_template(more: Json) -> Json:
    spec = {
        **more,
        "sourceNode": "pve1",
        "templateID": 9000,
        "format": "raw",
        "full": True,
        "numSockets": 1,
        "numCores": 2,
        "memoryMiB": 4096,
        "disks": {"bootVolume": {"disk": "scsi0", "sizeGb": 20}},
        "network": {"networkDevices": [DEVICE]},
    }
    return {"template": {"spec": spec}}


def _deployment(name: str, workers: int) -> Json:
    spec = {
        "clusterName": name,
        "version": VERSION,
        "bootstrap": {
            "configRef": _reference("bootstrap.cluster.x-k8s.io", "KubeadmConfigTemplate", name)
        },
        "infrastructureRef": _reference(INFRA, "ProxmoxMachineTemplate", name),
    }
    return {
        "clusterName": name,
        "replicas": workers,
        "selector": {"matchLabels": {}},
        "template": {"spec": spec},
    }
