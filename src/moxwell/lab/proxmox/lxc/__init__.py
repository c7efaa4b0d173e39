"""Containers: configuration, power, snapshots, clones, migration."""
