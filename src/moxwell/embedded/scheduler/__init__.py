"""
A scheduler in small: room, selectors, required node affinity, taints, spread, volumes.

Left out on purpose: pod affinity, preemption, preferences, static volumes that wait for a consumer.
"""
