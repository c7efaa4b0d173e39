"""Labels and annotations of a tenant's namespace, read by the controller of its clusters."""

from moxwell.api.infra.tenant_limits import BRIDGE, ISOLATED, POOL, VLAN

TENANT_LABEL = "moxwell.dev/tenant"  # the name of the Tenant that the namespace belongs to
FIREWALL_GROUP = "moxwell.dev/firewall-group"  # the Proxmox security group of every node
IP_POOL = "moxwell.dev/ip-pool"  # the InClusterIPPool of nodes that name no addresses
MADE = "moxwell.dev/isolation"  # what the tenant has in Proxmox: pool, vnet, token

__all__ = [
    "BRIDGE",
    "FIREWALL_GROUP",
    "IP_POOL",
    "ISOLATED",
    "MADE",
    "POOL",
    "TENANT_LABEL",
    "VLAN",
]
