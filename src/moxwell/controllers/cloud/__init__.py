"""
The cloud controller manager: node identities, node lifecycle and load balancer addresses.

``features`` parses the configuration, ``guest_lookup`` finds the guest of a node, ``identity``
computes labels and addresses. The controllers are ``node``, ``lifecycle`` and ``service``; they
work on any cluster they are given, also on a tenant's from outside.
"""
