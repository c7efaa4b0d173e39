"""The external-provisioner sidecar of CSI: creates and deletes volumes."""
