"""Machines and clusters on Proxmox: ``infrastructure.cluster.x-k8s.io``, hub and older forms."""
