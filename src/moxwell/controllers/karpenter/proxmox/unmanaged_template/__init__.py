"""The controller of ProxmoxUnmanagedTemplates: which templates in Proxmox they mean."""
