"""``karpenter.interruption``: ends spot machines whose room others need."""
