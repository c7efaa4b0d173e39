"""``infra.machine``: one guest for each ProxmoxMachine, from claim to end."""
