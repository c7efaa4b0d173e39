"""One module per area of the Proxmox API; one method per endpoint, one request per method."""
