"""
The autoscaler: Karpenter's controllers over node pools and node claims.

Node pools, node claims, node classes, nodes and pods belong to the cluster that is scaled. The
machines belong to the management cluster, or to the same cluster. :mod:`.provider` is the border:
these controllers decide which node claims exist and when they are deleted; a provider makes and
deletes their machines.

| module or package | content |
|---|---|
| ``provider`` | what a provider of machines offers; Karpenter calls it a cloud provider |
| ``state`` | the scaled cluster as the decisions see it |
| ``claim_template`` | node claims as node pools make them |
| ``provisioning`` | creates node claims for pods that no node has room for |
| ``nodepool`` | readiness, validation, hash, counters and replicas of node pools |
| ``setup`` | adds all controllers to the runtime of the scaled cluster |
"""
