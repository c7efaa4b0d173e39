"""Cluster API kinds that Moxwell reads and writes, and serves in lab and standalone mode."""
