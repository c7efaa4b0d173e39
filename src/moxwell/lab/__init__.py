"""Instead of a Proxmox, for the lab and for tests: the simulated Proxmox VE and the simulated guests."""
