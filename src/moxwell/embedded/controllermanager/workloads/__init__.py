"""
Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and disruption budgets, in small.

``plan`` holds the decisions, ``see`` the reads, ``controller`` the loops. Left out on purpose:
rollback, progress deadlines, history of StatefulSets, indexed and suspended Jobs.
"""
