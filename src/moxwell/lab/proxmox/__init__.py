"""A simulator of the Proxmox VE 8.4 and 9.x API: several clusters ("regions") in one process."""
