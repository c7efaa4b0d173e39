"""The Deployment controller of kube-controller-manager."""
