"""The controller that adopts guests which karpenter-provider-proxmox made."""
