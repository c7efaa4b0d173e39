"""The PersistentVolume controller of kube-controller-manager: binds claims and volumes."""
