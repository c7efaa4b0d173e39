"""The embedded Kubernetes-style API on SQLite."""
