"""The loop around every controller: cache, queue, worker, leases, status, the manager."""
