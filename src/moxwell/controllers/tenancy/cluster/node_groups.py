"""
The objects of one node group: two templates, a MachineDeployment, a MachineHealthCheck. Pure.

Templates are named by a hash of their content and the MachineDeployment refers to them by name, so
only a change of content causes a rolling update.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from moxwell.api.capi.shared import CLUSTER_NAME, DEPLOYMENT_NAME
from moxwell.api.cozystack import Kubernetes, NodeGroup
from moxwell.api.infra.machine import GROUP as INFRA
from moxwell.api.infra.machine import HUB
from moxwell.controllers.tenancy.cluster.defaults import Defaults, regions_of, version_of, zones_of
from moxwell.controllers.tenancy.cluster.instance_types import NodeSize, size_of
from moxwell.controllers.tenancy.cluster.naming import (
    BOOTSTRAP,
    CORE,
    GROUP_LABEL,
    new_object,
    ref,
    seconds,
    short_hash,
)
from moxwell.errors import Invalid

Json = dict[str, Any]
AUTOSCALER = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-"
TALOS = "talos"
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"


def group_objects(app: Kubernetes, group: NodeGroup, defaults: Defaults) -> Iterator[Json]:
    """The objects of a group, in the order of creation."""
    size, name = size_of(group), f"{app.name}-{group.name}"
    machine = machine_spec(app, group, size, defaults)
    bootstrap_kind, api, bootstrap = bootstrap_template(group)
    machine_name = f"{name}-{short_hash(machine)}"
    bootstrap_name = f"{name}-{short_hash(bootstrap)}"
    yield new_object(
        app,
        f"{INFRA}/{HUB}",
        "ProxmoxMachineTemplate",
        machine_name,
        {"template": {"spec": machine}},
    )
    template = {"template": {"spec": bootstrap}}
    yield new_object(app, f"{BOOTSTRAP}/{api}", bootstrap_kind, bootstrap_name, template)
    yield deployment(app, group, size, defaults, (machine_name, bootstrap_name))
    yield health_check(app, group)


def machine_spec(app: Kubernetes, group: NodeGroup, size: NodeSize, defaults: Defaults) -> Json:
    """The spec of a group's ProxmoxMachineTemplate."""
    device: Json = {"name": "net0", "model": "virtio"}
    _refuse_other_network(group, defaults)
    bridge, vlan = group.bridge or defaults.bridge, group.vlan or defaults.vlan
    device |= {"bridge": bridge} if bridge else {}
    device |= {"firewall": True} if defaults.firewall_group else {}
    device |= {"vlan": vlan} if vlan else {}
    if not _has_pool(app, group, defaults):
        device["dhcp4"] = True
    spec: Json = {
        "numSockets": 1,
        "numCores": size.cores,
        "memoryMiB": size.memory_mib,
        "disks": {"bootVolume": {"sizeGb": size.disk_gib}},
        "network": {"networkDevices": [device]},
        "spread": "Prefer",
    }
    spec |= _template(group)
    if group.storage:
        spec |= {"storage": group.storage, "full": True}
    if defaults.firewall_group:
        spec["firewallGroups"] = [defaults.firewall_group]
    if pool := resource_pool(app, group, defaults):
        spec["pool"] = pool
    if zones := _selectable_zones(app, group, defaults):
        spec["zones"] = zones
    if group.gpus:
        spec["pciDevices"] = [{"mapping": gpu.name, "pcie": True} for gpu in group.gpus]
    return spec


def _refuse_other_network(group: NodeGroup, defaults: Defaults) -> None:
    """Nodes of an isolated tenant are connected to the tenant's network and to no other."""
    if not defaults.isolated:
        return
    if group.bridge not in ("", defaults.bridge):
        raise Invalid(f"node group {group.name}: the tenant may not use the bridge {group.bridge}")
    if group.vlan not in (None, defaults.vlan):
        raise Invalid(f"node group {group.name}: the tenant may not use the VLAN {group.vlan}")


def resource_pool(app: Kubernetes, group: NodeGroup, defaults: Defaults) -> str:
    """The Proxmox pool of a group: the tenant's, below the pool that Moxwell is limited to."""
    names = regions_of(app, group, defaults)
    parents = {r.resource_pool for r in defaults.regions if r.name in names}
    if len(parents) > 1:
        raise Invalid(
            f"node group {group.name}: regions {', '.join(names)} are limited to different pools; "
            "name the regions of each group"
        )
    return "/".join(part for part in (*parents, defaults.pool) if part)


def autoscaled_machine_spec(app: Kubernetes, defaults: Defaults) -> Json:
    """The fields that machines of the autoscaler share with the first node group."""
    group = next(iter(app.spec.groups), NodeGroup(name="autoscaled"))
    spec = machine_spec(app, group, size_of(group), defaults)
    shared = ("network", "firewallGroups", "storage", "full", "spread", "pool")
    return {name: spec[name] for name in shared if name in spec}


def _selectable_zones(app: Kubernetes, group: NodeGroup, defaults: Defaults) -> list[str]:
    """The zones by name, unless it is one (then a failure domain names it) or all of them."""
    zones = [zone.name for zone in zones_of(app, group, defaults)]
    if len(zones) < 2:
        return []
    return [] if set(zones) == set(regions_of(app, None, defaults)) else zones


def _template(group: NodeGroup) -> Json:
    if group.template_tags:
        return {"templateSelector": {"matchTags": list(group.template_tags)}}
    if isinstance(group.template, int):
        return {"templateID": group.template}
    if group.os == TALOS and not group.template:
        raise Invalid(
            f"node group {group.name}: os {TALOS} needs `template` or `templateTags` with a "
            "template of Talos; the version alone does not tell it from others"
        )
    return {"templateName": group.template} if group.template else {}


def _has_pool(app: Kubernetes, group: NodeGroup, defaults: Defaults) -> bool:
    if app.spec.network.addresses or app.spec.network.pool or defaults.ip_pool:
        return True
    names = regions_of(app, group, defaults)
    return all(r.pool for r in defaults.regions if r.name in names)


def bootstrap_template(group: NodeGroup) -> tuple[str, str, Json]:
    """Kind, version and spec of a group's bootstrap template."""
    if group.os == TALOS:
        return "TalosConfigTemplate", "v1alpha3", talos_spec(group)
    return "KubeadmConfigTemplate", "v1beta2", kubeadm_spec(group)


def talos_spec(group: NodeGroup) -> Json:
    """
    The spec of a group's TalosConfigTemplate.

    The provider ID is not in the patch: the bootstrap ISO of each machine has it.
    """
    registration = kubeadm_spec(group)["joinConfiguration"]["nodeRegistration"]
    args = {a["name"]: a["value"] for a in registration["kubeletExtraArgs"]}
    del args["provider-id"]
    patch = {"machine": {"kubelet": {"extraArgs": args}}}
    return {"generateType": "worker", "strategicPatches": [yaml.safe_dump(patch)]}


def kubeadm_spec(group: NodeGroup) -> Json:
    """The spec of a group's KubeadmConfigTemplate."""
    labels = {f"node-role.kubernetes.io/{role}": "" for role in group.roles}
    labels |= {GROUP_LABEL: group.name, **group.labels}
    settable = ",".join(f"{k}={v}" for k, v in _allowed_for_kubelet(labels))
    args = [
        {"name": "cloud-provider", "value": "external"},
        {"name": "provider-id", "value": "proxmox://{{ ds.meta_data.instance_id }}"},
        {"name": "node-labels", "value": settable},
    ]
    if group.taints:
        args.append({"name": "register-with-taints", "value": ",".join(group.taints)})
    args += _reservations(group)
    registration: Json = {"name": "{{ local_hostname }}", "kubeletExtraArgs": args}
    return {"joinConfiguration": {"nodeRegistration": registration}}


def _allowed_for_kubelet(labels: Mapping[str, str]) -> list[tuple[str, str]]:
    """A kubelet may not set role labels; Cluster API copies those from the Machine."""
    kept = {k: v for k, v in labels.items() if not k.startswith("node-role.kubernetes.io/")}
    return sorted(kept.items())


def _reservations(group: NodeGroup) -> list[Json]:
    given = group.kubelet
    system = _pairs(cpu=given.system_reserved_cpu, memory=given.system_reserved_memory)
    kube = _pairs(cpu=given.kube_reserved_cpu, memory=given.kube_reserved_memory)
    hard = f"memory.available<{given.eviction_hard_memory}" if given.eviction_hard_memory else ""
    rows = (("system-reserved", system), ("kube-reserved", kube), ("eviction-hard", hard))
    return [{"name": name, "value": value} for name, value in rows if value]


def _pairs(**amounts: str) -> str:
    return ",".join(f"{name}={amount}" for name, amount in sorted(amounts.items()) if amount)


def deployment(
    app: Kubernetes, group: NodeGroup, size: NodeSize, defaults: Defaults, names: tuple[str, str]
) -> Json:
    """The MachineDeployment; an autoscaled one has bounds instead of a replica count."""
    machine, bootstrap = names
    name = f"{app.name}-{group.name}"
    roles = {f"node-role.kubernetes.io/{role}": "" for role in group.roles}
    labels = {CLUSTER_NAME: app.name, DEPLOYMENT_NAME: name, GROUP_LABEL: group.name, **roles}
    zones = zones_of(app, group, defaults)
    spec: Json = {
        "clusterName": app.name,
        "selector": {"matchLabels": {CLUSTER_NAME: app.name, DEPLOYMENT_NAME: name}},
        "rollout": {
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            }
        },
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                "clusterName": app.name,
                "version": group.version or version_of(app, defaults),
                "bootstrap": {"configRef": ref(BOOTSTRAP, bootstrap_template(group)[0], bootstrap)},
                "infrastructureRef": ref(INFRA, "ProxmoxMachineTemplate", machine),
            },
        },
    }
    if len(zones) == 1:
        spec["template"]["spec"]["failureDomain"] = zones[0].name
    if not group.autoscaled:
        spec["replicas"] = group.replicas
    obj = new_object(app, CORE, "MachineDeployment", name, spec)
    obj["metadata"]["labels"][GROUP_LABEL] = group.name
    if group.autoscaled:
        obj["metadata"]["annotations"] = _autoscaling(group, size)
    return obj


def _autoscaling(group: NodeGroup, size: NodeSize) -> dict[str, str]:
    return {
        f"{AUTOSCALER}min-size": str(group.min_replicas or 0),
        f"{AUTOSCALER}max-size": str(group.max_replicas),
        f"{CAPACITY}cpu": str(size.cores),
        f"{CAPACITY}memory": f"{size.memory_mib}Mi",
        f"{CAPACITY}ephemeral-disk": f"{size.disk_gib}Gi",
        f"{CAPACITY}maxPods": "110",
        f"{CAPACITY}labels": f"{GROUP_LABEL}={group.name}",
    }


def health_check(app: Kubernetes, group: NodeGroup) -> Json:
    """The MachineHealthCheck, which replaces unhealthy nodes unless too many are unhealthy."""
    given = app.spec.node_health_check
    most = group.max_unhealthy or (given.max_unhealthy if given else None) or "50%"
    start = group.node_startup_timeout or (given.node_startup_timeout if given else "") or "20m"
    unknown = (given.ready_unknown_timeout if given else "") or "5m"
    broken = (given.ready_false_timeout if given else "") or "10m"
    spec = {
        "clusterName": app.name,
        "selector": {"matchLabels": {DEPLOYMENT_NAME: f"{app.name}-{group.name}"}},
        "checks": {
            "nodeStartupTimeoutSeconds": seconds(start),
            "unhealthyNodeConditions": [
                {"type": "Ready", "status": "Unknown", "timeoutSeconds": seconds(unknown)},
                {"type": "Ready", "status": "False", "timeoutSeconds": seconds(broken)},
            ],
        },
        "remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": most}},
    }
    return new_object(app, CORE, "MachineHealthCheck", f"{app.name}-{group.name}", spec)
