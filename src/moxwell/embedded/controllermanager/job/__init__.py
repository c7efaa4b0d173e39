"""The Job controller of kube-controller-manager; without indexed jobs."""
