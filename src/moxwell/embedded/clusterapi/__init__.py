"""Controllers of Cluster API, its kubeadm and IPAM providers and Kamaji, reduced to what the lab needs."""
