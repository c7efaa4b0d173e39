"""The Machine controller of Cluster API; drain rules and in-place updates are not implemented."""
