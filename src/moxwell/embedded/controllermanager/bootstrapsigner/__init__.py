"""The bootstrap signer of kube-controller-manager: ``kubeadm join`` waits for its signatures."""
