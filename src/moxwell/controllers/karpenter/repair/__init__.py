"""``karpenter.repair``: replaces nodes that stay unhealthy, unless many nodes of the pool are."""
