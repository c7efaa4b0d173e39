"""
Volumes for pods: the volume controllers of kube-controller-manager and the CSI sidecars.

The sidecars call a :class:`~.plugin.CSIPlugin` in this process instead of a gRPC socket.
"""
