"""Proxmox VE from outside: a client per region, what is known of it, the steps that change it."""
