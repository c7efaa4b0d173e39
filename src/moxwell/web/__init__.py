"""
The dashboard: overview, views, history, change log and HTTP server.

Reads caches and inventories; changes nothing in Kubernetes or Proxmox.
"""
