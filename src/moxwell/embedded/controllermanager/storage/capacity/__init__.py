"""The capacity tracking of the external-provisioner sidecar of CSI."""
