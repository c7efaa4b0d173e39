"""Hosted control planes of tenant clusters: in this process, or from Kubernetes binaries."""
