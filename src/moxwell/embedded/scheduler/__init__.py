"""
A small kube-scheduler: resources, selectors, required node affinity, taints, spreading, volumes.

Pod affinity, preemption and preferences are not implemented.
"""
