"""What the operator sets for the machines that the autoscaler makes for a tenant cluster."""

from moxwell.api.cozystack import Kubernetes, NodeGroup
from moxwell.controllers.karpenter.proxmox.scope import MachineDefaults
from moxwell.controllers.tenancy.cluster.defaults import Defaults, version_of
from moxwell.controllers.tenancy.cluster.instance_types import size_of
from moxwell.controllers.tenancy.cluster.node_groups import machine_spec

NETWORK_FIELDS = ("network", "firewallGroups")


def machine_defaults(cluster: Kubernetes | None, defaults: Defaults) -> MachineDefaults:
    """The network of the cluster's node groups; nothing for a cluster without a Kubernetes."""
    if cluster is None:
        return MachineDefaults()
    group = NodeGroup(name="autoscaled")
    spec = machine_spec(cluster, group, size_of(group), defaults)
    kept = {name: spec[name] for name in NETWORK_FIELDS if name in spec}
    return MachineDefaults(kept, version_of(cluster, defaults))
