"""The Talos control plane provider of Cluster API, without rollouts and remediation."""
