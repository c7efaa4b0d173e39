"""The kubeadm bootstrap provider of Cluster API, without Ignition."""
