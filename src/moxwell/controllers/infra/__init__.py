"""Cluster API infrastructure on Proxmox: clusters, machines, machine templates, orphans."""
