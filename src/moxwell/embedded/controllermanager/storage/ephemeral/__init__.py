"""The ephemeral volume controller of kube-controller-manager."""
