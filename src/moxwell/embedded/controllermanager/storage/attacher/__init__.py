"""The external-attacher sidecar of CSI: attaches volumes to nodes."""
