"""
``cloud.service``: addresses for Services of type LoadBalancer; others announce them.

Off unless configured. Takes Services that name our load balancer class, gives each an address from
a pool or from PVE's own IPAM, and writes it where MetalLB, kube-vip or Cilium look for it. Services
with the same sharing key share an address if their ports differ.
"""
