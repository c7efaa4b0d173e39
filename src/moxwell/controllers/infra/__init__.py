"""Machines on Proxmox: the ground (``cluster``), guests (``machine``), leftovers (``collect``)."""
