"""Controllers of kube-controller-manager and of the CSI sidecars, for lab and standalone."""
