"""
``karpenter.termination``: drains nodes of deleted node claims and terminates their machines.

A node is tainted, drained by the Eviction API, its volumes are detached by the attach-detach
controller, its machine is terminated by the provider; then the finalizer is removed.
"""
