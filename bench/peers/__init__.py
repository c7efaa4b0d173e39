"""Run programs of other projects and Moxwell on the same simulated Proxmox and compare them."""
