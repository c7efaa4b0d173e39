"""Kubernetes, the asking side: transport, credentials, typed reads and writes, watches."""
