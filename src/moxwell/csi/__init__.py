"""The CSI driver: serves Kubernetes persistent volumes from disks on Proxmox storages."""
