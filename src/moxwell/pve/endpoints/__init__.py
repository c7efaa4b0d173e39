"""Endpoints of the Proxmox API, one module per area; each method sends one request."""
