"""
``karpenter.eligibility``: which node claims may be disrupted: conditions Drifted and
Consolidatable, and ``lastPodEventTime``.
"""
