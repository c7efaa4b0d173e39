"""``infra.template``: capacity and node info of a ProxmoxMachineTemplate."""
