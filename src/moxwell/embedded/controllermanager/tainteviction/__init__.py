"""The taint eviction controller of kube-controller-manager."""
