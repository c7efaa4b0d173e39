"""``infra.machine``: one Proxmox guest for each ProxmoxMachine."""
