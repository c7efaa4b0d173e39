"""The Cluster controller of Cluster API."""
