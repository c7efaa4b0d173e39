"""Software-defined networks: zones, vnets, subnets, addresses."""
