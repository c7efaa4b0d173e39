"""Makes Proxmox templates from cloud images: for ``moxwell template`` and for ProxmoxTemplates."""
