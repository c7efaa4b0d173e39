"""Firewall files of cluster, nodes, groups and guests."""
