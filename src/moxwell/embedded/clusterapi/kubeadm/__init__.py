"""
The kubeadm bootstrap loop of Cluster API, in small: from a KubeadmConfig to what a worker boots
with.

Left out on purpose: ``kubeadm init`` and joining control planes (they are hosted here), Ignition.
"""
