"""
An embedded Kubernetes API server for lab and standalone mode, in place of kube-apiserver and etcd.
"""
