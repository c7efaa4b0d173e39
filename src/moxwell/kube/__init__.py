"""The Kubernetes client: transport, credentials, typed reads and writes, watches."""
