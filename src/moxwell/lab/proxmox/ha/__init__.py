"""High availability: resources, groups, rules, and the manager that acts on them."""
