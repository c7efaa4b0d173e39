"""Guests of the simulated Proxmox that are a genuine Debian with containerd and kubelet."""
