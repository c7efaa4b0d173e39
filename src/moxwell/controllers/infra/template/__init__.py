"""``infra.template``: what a node from a ProxmoxMachineTemplate will offer."""
