"""
The patches of the machine configuration of Talos control planes of a management cluster. Pure.

Talos itself announces the virtual IP, on the machine that etcd elects. Its own CNI is left out, and
the nodes have no taints, because the management cluster has no other nodes.
"""

from typing import Any

import yaml

from moxwell.management.spec import NO_VIRTUAL_IP, ManagementSpec

Json = dict[str, Any]


def talos_patches(spec: ManagementSpec) -> list[str]:
    """Strategic patches: ours, then those of the user."""
    ours = [_machine(spec)] if spec.virtual_ip != NO_VIRTUAL_IP else []
    return [yaml.safe_dump(patch, sort_keys=False) for patch in (*ours, _cluster(spec))] + list(
        spec.talos.patches
    )


def _machine(spec: ManagementSpec) -> Json:
    """Physical devices only: a machine has one, and its name in Talos depends on the hardware."""
    device = {"deviceSelector": {"physical": True}, "vip": {"ip": spec.endpoint}}
    return {"machine": {"network": {"interfaces": [device]}}}


def _cluster(spec: ManagementSpec) -> Json:
    cluster: Json = {
        "allowSchedulingOnControlPlanes": True,
        "network": {"cni": {"name": "none"}},
        "controlPlane": {"localAPIServerPort": spec.port},
    }
    return {"cluster": cluster}
