"""The CertificateSigningRequest signer of kube-controller-manager, for kubelets."""
