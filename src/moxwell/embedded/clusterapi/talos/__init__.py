"""The Talos bootstrap provider of Cluster API: machine configurations of nodes."""
