"""``karpenter.provisioner``: creates node claims for pods that no node has room for."""
