"""The Talos bootstrap provider of Cluster API, for workers of hosted control planes."""
