"""
The agent on a Proxmox host: publishes the host's topology, and pins the threads of marked guests.

It imports the standard library only, so that it runs with what Proxmox ships. It runs as root on
the host and takes no requests. It changes marked guests only and undoes what it changed.
"""
