"""The kubeadm bootstrap provider of Cluster API, for workers; without init and Ignition."""
