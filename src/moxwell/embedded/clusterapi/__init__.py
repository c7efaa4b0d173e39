"""Controllers of Cluster API, its kubeadm and IPAM providers and Kamaji, for lab and standalone."""
