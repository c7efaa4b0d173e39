"""
Kinds of Karpenter and of its Proxmox provider, with the validation of the upstream CRDs.

``karpenter.sh`` NodePool, NodeClaim and NodeOverlay, ``autoscaling.x-k8s.io`` CapacityBuffer, and
``karpenter.proxmox.sinextra.dev`` ProxmoxNodeClass, ProxmoxTemplate and ProxmoxUnmanagedTemplate.
"""
