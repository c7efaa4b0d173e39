"""
Kamaji's control plane provider for Cluster API, in small: a KamajiControlPlane becomes a
TenantControlPlane, and what that brings (endpoint, kubeconfig, authority) is handed to the cluster.
"""
