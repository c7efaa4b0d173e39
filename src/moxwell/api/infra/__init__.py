"""
Kinds of ``infrastructure.cluster.x-k8s.io``: ProxmoxMachine, ProxmoxCluster and their templates.
"""
