"""The pod garbage collector of kube-controller-manager."""
