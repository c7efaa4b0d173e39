"""The audit log of the embedded API server: ``audit.k8s.io/v1`` events by a policy."""
