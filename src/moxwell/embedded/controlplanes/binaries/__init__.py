"""
Control planes from kube-apiserver, kube-controller-manager, kube-scheduler and etcd binaries.

The programs run as processes of this machine; all tenants share one etcd.
"""
