"""The objects in the temporary API from which the management cluster is made. Pure."""

from typing import Any

from moxwell.api.capi.bootstrap import KubeadmConfig
from moxwell.api.capi.controlplane import KubeadmControlPlane
from moxwell.api.capi.core import Cluster, Machine
from moxwell.api.capi.shared import CLUSTER_NAME
from moxwell.api.capi.talos import TalosConfig, TalosControlPlane
from moxwell.api.infra.cluster import ProxmoxCluster
from moxwell.api.infra.machine import ProxmoxMachine, ProxmoxMachineTemplate
from moxwell.api.ipam import InClusterIPPool, IPAddress, IPAddressClaim
from moxwell.api.kinds import Resource
from moxwell.management.spec import (
    TALOS,
    ManagementSpec,
    ManagementZone,
    template_name,
    zone_name,
)
from moxwell.management.talos_patches import talos_patches
from moxwell.management.virtual_ip import virtual_ip_commands, virtual_ip_files

Json = dict[str, Any]
PROVIDER_ID = {"name": "provider-id", "value": "proxmox://'{{ ds.meta_data.instance_id }}'"}
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
MOVED: tuple[Resource, ...] = (  # the kinds that are moved into the management cluster
    Cluster.resource,
    ProxmoxCluster.resource,
    ProxmoxMachineTemplate.resource,
    KubeadmControlPlane.resource,
    TalosControlPlane.resource,
    Machine.resource,
    KubeadmConfig.resource,
    TalosConfig.resource,
    ProxmoxMachine.resource,
    InClusterIPPool.resource,
    IPAddressClaim.resource,
    IPAddress.resource,
    SECRETS,
)

KUBEADM = frozenset({KubeadmControlPlane.resource, KubeadmConfig.resource})
TALOS_KINDS = frozenset({TalosControlPlane.resource, TalosConfig.resource})


def needed_kinds(spec: ManagementSpec) -> tuple[Resource, ...]:
    """The moved kinds that the management cluster must serve."""
    others = KUBEADM if spec.bootstrap == TALOS else TALOS_KINDS
    return tuple(resource for resource in MOVED if resource not in others)


def cluster_objects(spec: ManagementSpec) -> tuple[tuple[Resource, Json], ...]:
    """What is created in the temporary API, the Cluster last."""
    return (
        (ProxmoxMachineTemplate.resource, _machine_template(spec)),
        _control_plane(spec),
        (ProxmoxCluster.resource, _infrastructure(spec)),
        (Cluster.resource, _cluster(spec)),
    )


def control_plane_name(spec: ManagementSpec) -> str:
    return f"{spec.name}-control-plane"


def _object(resource: Resource, spec: ManagementSpec, name: str, body: Json) -> Json:
    meta = {"name": name, "namespace": spec.namespace, "labels": {CLUSTER_NAME: spec.name}}
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
    return head | {"spec": body}


def _ref(resource: Resource, name: str) -> Json:
    return {"apiGroup": resource.group, "kind": resource.kind, "name": name}


def _cluster(spec: ManagementSpec) -> Json:
    body = {
        "clusterNetwork": {
            "pods": {"cidrBlocks": [spec.pods]},
            "services": {"cidrBlocks": [spec.services]},
        },
        "infrastructureRef": _ref(ProxmoxCluster.resource, spec.name),
        "controlPlaneRef": _ref(_control_plane(spec)[0], control_plane_name(spec)),
    }
    return _object(Cluster.resource, spec, spec.name, body)


def _infrastructure(spec: ManagementSpec) -> Json:
    body: Json = {
        "controlPlaneEndpoint": {"host": spec.endpoint, "port": spec.port},
        "zoneConfig": [_zone(zone) for zone in spec.zones],
    }
    if spec.dns:
        body["dnsServers"] = list(spec.dns)
    if spec.pool:
        body["pool"] = spec.pool
    return _object(ProxmoxCluster.resource, spec, spec.name, body)


def _zone(zone: ManagementZone) -> Json:
    row: Json = {
        "zone": zone_name(zone),
        "region": zone.region,
        "bridge": zone.bridge,
        "controlPlane": True,
        "ipv4Config": {
            "addresses": list(zone.addresses),
            "prefix": zone.prefix,
            "gateway": zone.gateway,
        },
    }
    optional = {"nodes": list(zone.hosts), "storage": zone.storage, "vlan": zone.vlan}
    return row | {key: value for key, value in optional.items() if value}


def _machine_template(spec: ManagementSpec) -> Json:
    device = {"name": "net0"}
    machine: Json = {
        "spread": spec.spread,
        "numCores": spec.cores,
        "memoryMiB": spec.memory,
        "disks": {"bootVolume": {"sizeGb": spec.disk}},
        "network": {"networkDevices": [device]},
    }
    if name := template_name(spec):
        machine["templateName"] = name
    resource = ProxmoxMachineTemplate.resource
    return _object(resource, spec, control_plane_name(spec), {"template": {"spec": machine}})


def _control_plane(spec: ManagementSpec) -> tuple[Resource, Json]:
    resource, body = _talos(spec) if spec.bootstrap == TALOS else _kubeadm(spec)
    return resource, _object(resource, spec, control_plane_name(spec), body)


def _talos(spec: ManagementSpec) -> tuple[Resource, Json]:
    template = ProxmoxMachineTemplate.resource
    name = control_plane_name(spec)
    ref = {"apiVersion": template.api_version, "kind": template.kind, "name": name}
    config = {"generateType": "controlplane", "strategicPatches": talos_patches(spec)}
    return TalosControlPlane.resource, {
        "replicas": spec.replicas,
        "version": spec.kubernetes,
        "infrastructureTemplate": ref | {"namespace": spec.namespace},
        "controlPlaneConfig": {"controlplane": config},
    }


def _kubeadm(spec: ManagementSpec) -> tuple[Resource, Json]:
    # Without taints: the management cluster has no other nodes for its own programs.
    registration = {"taints": [], "kubeletExtraArgs": [PROVIDER_ID]}
    # The virtual IP, or a DNS name, leads to the port of the API servers themselves.
    local = {"localAPIEndpoint": {"bindPort": spec.port}}
    config: Json = {
        "initConfiguration": {"nodeRegistration": registration, **local},
        "joinConfiguration": {"nodeRegistration": registration, "controlPlane": local},
    }
    if files := virtual_ip_files(spec):
        config |= {"files": files, "preKubeadmCommands": virtual_ip_commands(spec)}
    if spec.image_repository:
        config["clusterConfiguration"] = {"imageRepository": spec.image_repository}
    if spec.ssh_keys:
        user = {"name": "moxwell", "sudo": "ALL=(ALL) NOPASSWD:ALL"}
        config["users"] = [user | {"sshAuthorizedKeys": list(spec.ssh_keys)}]
    template = ProxmoxMachineTemplate.resource
    machine = {"infrastructureRef": _ref(template, control_plane_name(spec))}
    body = {
        "replicas": spec.replicas,
        "version": spec.kubernetes,
        "machineTemplate": {"spec": machine},
        "kubeadmConfigSpec": config,
    }
    return KubeadmControlPlane.resource, body
