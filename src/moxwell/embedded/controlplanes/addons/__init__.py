"""
Add-ons of tenants on binaries: what a cluster needs beside its control plane and its nodes.

kube-proxy, CoreDNS, metrics-server, the node plugin of the CSI driver and a simple CNI have objects
of our own; others are manifests and charts that the operator names.
"""
