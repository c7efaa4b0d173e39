"""The DaemonSet controller of kube-controller-manager."""
