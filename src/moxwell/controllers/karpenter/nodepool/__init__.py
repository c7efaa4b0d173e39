"""``karpenter.nodepool``: readiness, validation, hash, counters and replicas of node pools."""
