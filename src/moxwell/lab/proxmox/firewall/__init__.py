"""Firewall configuration of the cluster, nodes, security groups and guests."""
