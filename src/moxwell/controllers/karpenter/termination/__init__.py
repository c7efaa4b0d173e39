"""
``karpenter.termination``: ends nodes of node claims that are being deleted.

A node is tainted, drained by the Eviction API, its volumes are detached by the attach-detach
controller, its machine is terminated by the provider; then the finalizer is removed.
"""
