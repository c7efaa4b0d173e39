"""The in-cluster IPAM provider of Cluster API."""
