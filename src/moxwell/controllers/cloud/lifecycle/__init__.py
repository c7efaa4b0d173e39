"""
``cloud.lifecycle``: a node whose guest is gone is deleted, one whose guest is stopped is tainted.

Only nodes that are not Ready are asked about. A permission that is missing, a region that is
silent, a host that is down or a region nobody configured is never "gone".
"""
