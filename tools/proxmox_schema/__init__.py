"""Writes the API facts of the Proxmox simulator from the API schemas of Proxmox VE."""
