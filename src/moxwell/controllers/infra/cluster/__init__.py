"""``infra.cluster``: regions, zones, IP pools, credentials and endpoint of a ProxmoxCluster."""
