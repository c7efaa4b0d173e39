"""``infra.cluster``: the ground of a Kubernetes cluster: regions, zones, pools, endpoint."""
