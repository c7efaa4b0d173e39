"""The ReplicaSet controller of kube-controller-manager."""
