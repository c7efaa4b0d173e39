"""envtest: upstream Kubernetes programs, built once and started for tests."""
