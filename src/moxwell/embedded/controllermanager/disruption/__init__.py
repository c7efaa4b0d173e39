"""The disruption controller of kube-controller-manager."""
