"""
Client of Proxmox VE: typed requests per region, an inventory, and the steps that change guests.
"""
