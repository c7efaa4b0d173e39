"""The CertificateSigningRequest approver of kube-controller-manager, for kubelets."""
