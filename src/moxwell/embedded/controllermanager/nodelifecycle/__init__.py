"""The node lifecycle controller of kube-controller-manager."""
