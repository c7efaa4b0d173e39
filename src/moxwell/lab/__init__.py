"""Simulated Proxmox VE and simulated guests, for the lab and for tests."""
