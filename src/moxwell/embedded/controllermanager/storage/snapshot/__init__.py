"""The snapshot-controller and the external-snapshotter sidecar of CSI."""
