"""The external-resizer sidecar of CSI: grows volumes."""
