"""
Nodes that have fallen silent, in small: Unknown, tainted, and their pods taken away in the end.

Left out on purpose: zones and eviction rates, tolerations other than the default 300 seconds.
"""
