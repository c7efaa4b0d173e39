"""The kinds every Kubernetes has: how Go encodes them, what it fills in, what it refuses."""
