"""Software-defined networking: zones, vnets, subnets, IPAM."""
