"""The EndpointSlice controller of kube-controller-manager; without topology hints."""
