"""ClusterResourceSets of Cluster API: manifests that are applied to clusters."""
