"""What a tenant's namespace carries for the clusters in it."""

OWNER = "moxwell.dev/tenant"  # a label: whose it is
WALL = "moxwell.dev/firewall-group"  # the security group around every node
BRIDGE = "moxwell.dev/bridge"  # the bridge or VNet of nodes that name none
