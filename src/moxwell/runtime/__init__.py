"""
What runs a controller: informer caches, work queue, worker, leases, status writer and manager.
"""
