"""A Proxmox VE that is not there: several regions in one process, faithful to 8.4 and 9.x."""
