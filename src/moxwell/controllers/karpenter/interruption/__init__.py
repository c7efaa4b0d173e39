"""``karpenter.interruption``: deletes spot machines whose capacity other machines or pods need."""
