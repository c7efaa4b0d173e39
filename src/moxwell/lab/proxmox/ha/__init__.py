"""High availability: resources, groups, rules and the HA manager."""
