"""
``karpenter.garbage``: deletes machines without a node claim, and node claims and nodes whose
machine is gone.
"""
