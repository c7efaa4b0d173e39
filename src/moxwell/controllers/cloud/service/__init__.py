"""
``cloud.service``: assigns addresses to Services of type LoadBalancer.

It is disabled unless configured. Services of our load balancer class get addresses from a pool or
from the IPAM of Proxmox VE, written to the annotation that MetalLB, kube-vip or Cilium reads.
Services with the same sharing key share an address if their ports differ.
"""
