"""
A provider for Cluster Autoscaler: the gRPC service ``externalgrpc`` over Cluster API's machines.

Node groups are the MachineDeployments of one cluster that have the annotations of a least and a
largest size. Cluster Autoscaler decides; this service changes replicas.
"""
