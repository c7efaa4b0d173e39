"""A TCP load balancer in front of the API servers of one tenant, in a process of its own."""
