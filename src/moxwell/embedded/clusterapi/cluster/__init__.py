"""
The Cluster loop of Cluster API, in small: owns its infrastructure and control plane, and goes last.

Left out on purpose: ClusterClass topologies, remote connection probes.
"""
