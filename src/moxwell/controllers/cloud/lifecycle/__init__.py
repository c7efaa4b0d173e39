"""
``cloud.lifecycle``: deletes nodes whose guest is gone and taints nodes whose guest is stopped.

Only nodes that are not Ready are looked up. A missing privilege, an unreachable region, an offline
host or a region that is not configured never counts as gone.
"""
