"""Controllers that kube-controller-manager and the CSI sidecars run in a real cluster."""
