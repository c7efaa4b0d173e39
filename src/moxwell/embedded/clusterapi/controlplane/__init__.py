"""The Kamaji control plane provider of Cluster API."""
