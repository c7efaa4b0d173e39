"""
A scheduler in small: room, selectors, required node affinity, taints, spread over hosts and zones.

Left out on purpose: pod affinity, preemption, preferences, volume binding beyond node affinity.
"""
