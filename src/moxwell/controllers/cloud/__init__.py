"""
The cloud controller: nodes know where they are, and go when their guest is gone.

``settings`` reads the configuration people already have, ``lookup`` finds the guest of a node in
the shared inventories, ``identity`` says what a node is told about itself. The loops are ``node``
(gives a new node its identity), ``lifecycle`` (follows guests that stop or vanish) and ``balancer``
(addresses for Services). They run on whatever cluster they are given: their own, or a tenant's from
outside.
"""
