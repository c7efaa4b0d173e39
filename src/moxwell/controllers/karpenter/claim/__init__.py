"""
``karpenter.claim``: the lifecycle of a node claim, from the launch of its machine to its deletion.

The provider makes the machine, the kubelet registers the node, and this controller connects the
two. What it remembers is in the node claim and the node: the provider ID and the node name in the
status of the claim, and the labels ``karpenter.sh/registered`` and ``karpenter.sh/initialized`` of
the node.

| module | content |
|---|---|
| ``plan`` | the next move of a node claim |
| ``deletion`` | the next move of one that is being deleted |
| ``registration`` | what a node gets from its node claim, and when it is initialized |
| ``describe`` | the conditions |
| ``see``, ``controller`` | reads, and the reconciler |
"""
