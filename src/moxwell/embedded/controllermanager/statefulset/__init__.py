"""The StatefulSet controller of kube-controller-manager; without ControllerRevisions."""
