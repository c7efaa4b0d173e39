"""The CronJob controller of kube-controller-manager."""
