"""The kinds of Cluster API that we read, write, and in lab and standalone mode also serve."""
