"""Labels and annotations of a tenant's namespace, read by the controller of its clusters."""

TENANT_LABEL = "moxwell.dev/tenant"  # the name of the Tenant that the namespace belongs to
FIREWALL_GROUP = "moxwell.dev/firewall-group"  # the Proxmox security group of every node
BRIDGE = "moxwell.dev/bridge"  # the bridge or VNet of nodes that name none
