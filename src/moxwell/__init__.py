"""Moxwell turns Proxmox VE clusters into a Kubernetes cloud."""

__version__ = "0.1.0"
