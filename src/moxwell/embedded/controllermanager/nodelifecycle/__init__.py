"""
Nodes that have fallen silent, in small: Unknown and tainted; and pods that do not bear a taint.

Left out on purpose: zones, eviction rates, and the condition that tells a pod why it must go.
"""
