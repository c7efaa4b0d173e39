"""``karpenter.repair``: replaces nodes that stay unhealthy, while most nodes of a pool are well."""
