"""The attach-detach controller of kube-controller-manager."""
